#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "deepinfer/error.h"

namespace deepinfer {

enum class CheckStatus { kPass, kFail, kNotApplicable };

/// One line of the list of checks that an inspection prints.
struct CheckLine {
  std::string name;  ///< What must hold.
  CheckStatus status = CheckStatus::kPass;
  std::string detail;  ///< Where it does not hold, or why it does not apply; may be empty.
};

/// What checks outside the checkpoint (of the tokenizer, say) need to know about it.
struct CheckpointFacts {
  std::filesystem::path directory;
  int64_t vocab_size = 0;
  int64_t engram_compressed_vocab_size = 0;  ///< 0: no Engram.
  bool has_engram_token_map = false;         ///< The folder has an engram_token_map.json.
};

struct InspectOptions {
  /// Read every weight and scale for NaN, however large the checkpoint is.
  bool verify_everything = false;
  bool show_progress = false;
  /// Adds lines to the checks; called once the configuration has been read. Errors that it throws
  /// end the inspection.
  std::function<std::vector<CheckLine>(const CheckpointFacts&)> more_checks = {};
};

struct InspectReport {
  std::string text;   ///< For people, with a final newline.
  std::string json;   ///< The same as one JSON object.
  bool ok = false;    ///< The checkpoint opens and no check fails.
  std::string error;  ///< One sentence: why it does not open, or the first check that fails.
};

/// Describes the checkpoint in `directory`: configuration, tensors by kind with sizes, checks,
/// memory plan. A bad checkpoint is reported, not thrown; throws only kInternal.
InspectReport inspect_checkpoint(const std::filesystem::path& directory,
                                 const InspectOptions& options = {});

/// What random checkpoint to write.
struct SynthOptions {
  std::string preset = "nano";  ///< "nano", "mini", "flash-slice" or "flash".
  std::filesystem::path directory =
      {};  ///< Must not exist or be empty; appears when it is complete.
  std::optional<int64_t> layers =
      std::nullopt;  ///< Backbone layers; the schedule of sources follows.
  std::optional<int64_t> experts = std::nullopt;  ///< Routed experts per layer.
  std::optional<int64_t> vocab_size = std::nullopt;
  std::optional<int64_t> engram_vocab_size = std::nullopt;  ///< About the rows per hash column.
  uint64_t seed = 0;
  bool sparse = false;  ///< Files of full size without content: holes that read as zeros.
  bool show_progress = false;
  /// Asked now and then; true ends the work, leaving nothing behind.
  std::function<bool()> interrupted = {};
};

/// Writes a checkpoint with random weights in the released layout. The bytes are a function of the
/// options alone. Errors: kInvalidArgument (options), kResourceExhausted (not enough free space,
/// interrupted), kIo.
void synthesize_checkpoint(const SynthOptions& options);

}  // namespace deepinfer
