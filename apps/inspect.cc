#include <array>
#include <string>
#include <utility>

#include "apps/cli.h"
#include "apps/commands.h"
#include "apps/output.h"
#include "base/error.h"
#include "base/file.h"
#include "deepinfer/checkpoint.h"
#include "deepinfer/tokenizer.h"

namespace deepinfer::apps {
namespace {

/// The added tokens that the engine and the chat encoding rely on, with their ids in the released
/// vocabulary (spec/checkpoint.md §3.2).
constexpr std::array<std::pair<std::string_view, int32_t>, 6> kReleaseTokens = {{
    {"<｜begin▁of▁sentence｜>", 0},
    {"<｜end▁of▁sentence｜>", 1},
    {"<｜User｜>", 128803},
    {"<｜Assistant｜>", 128804},
    {"<think>", 128821},
    {"</think>", 128822},
}};
constexpr int64_t kReleaseVocabulary = 129280;

/// spec/checkpoint.md §7, item 7.
std::vector<CheckLine> check_tokenizer(const CheckpointFacts& facts) {
  constexpr const char* kSize = "tokenizer.json has an entry for every token id";
  constexpr const char* kTokens = "the tokens of the chat encoding are in tokenizer.json";
  if (!entry_exists(facts.directory / "tokenizer.json")) {
    return {{kSize, CheckStatus::kNotApplicable, "the folder has no tokenizer.json"}};
  }
  std::vector<CheckLine> lines;
  try {
    const Tokenizer tokenizer = Tokenizer::load(facts.directory);
    const int64_t size = tokenizer.vocab_size();
    const bool same = size == facts.vocab_size;
    lines.push_back({kSize, same ? CheckStatus::kPass : CheckStatus::kFail,
                     std::to_string(size) + " entries" +
                         (same ? "" : ", vocab_size is " + std::to_string(facts.vocab_size))});
    CheckLine tokens = {kTokens, CheckStatus::kPass, ""};
    for (const auto& [text, release_id] : kReleaseTokens) {
      const std::optional<int32_t> id = tokenizer.added_token(text);
      if (id && (size != kReleaseVocabulary || *id == release_id)) continue;
      tokens.status = CheckStatus::kFail;
      tokens.detail += (tokens.detail.empty() ? "" : ", ") + std::string(text) +
                       (id ? " has id " + std::to_string(*id) : " is missing");
    }
    lines.push_back(std::move(tokens));
  } catch (const Error& error) {
    lines.push_back({kSize, CheckStatus::kFail, error.what()});
  }
  return lines;
}

}  // namespace

int inspect(std::span<const std::string> arguments) {
  Flags flags("inspect",
              "Describes a checkpoint folder: its configuration, tensors by kind with their sizes, "
              "checks and\nmemory plan. Exit code 2 if the checkpoint cannot be used or a check "
              "fails.");
  std::string directory;
  bool json = false;
  InspectOptions options = {.show_progress = true, .more_checks = check_tokenizer};
  flags.file("directory", "DIR", &directory, "Checkpoint folder");
  flags.require("directory");
  flags.toggle("--json", &json, "Print one JSON object");
  flags.toggle("--verify", &options.verify_everything,
               "Read every weight and scale in search of NaN, however large the checkpoint is");
  if (!flags.parse(arguments)) return 0;
  const InspectReport report = inspect_checkpoint(directory, options);
  Output().write(json ? report.json : report.text);
  if (!report.ok) fail(ErrorCode::kInvalidFile, "{}", report.error);
  return 0;
}

}  // namespace deepinfer::apps
