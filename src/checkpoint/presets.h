#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "checkpoint/config.h"

namespace deepinfer::checkpoint {

/// The configuration of the release (spec/checkpoint.md §1.1–1.3).
ModelConfig release_config();

/// Changes to a preset; nothing: the preset's value.
struct PresetOverrides {
  std::optional<int64_t> layers = std::nullopt;   // the schedule follows: see set_schedule
  std::optional<int64_t> experts = std::nullopt;  // routed; also an upper bound of the draft's
  std::optional<int64_t> vocab_size = std::nullopt;
  std::optional<int64_t> engram_vocab_size = std::nullopt;  // rows per hash column, about
};

/// A synthetic model. "nano": for tests, 7 MB, with a layer of every mode. "mini": about 3 GB,
/// released head sizes, 12 layers, five of them above the last KV source. "flash-slice": released
/// widths, 6 layers, 32 experts, small Engram tables. "flash": the release, the only one with a
/// vision tower. Errors: kInvalidArgument naming the preset or override.
ModelConfig preset_config(std::string_view preset, const PresetOverrides& overrides);

/// Lays out `num_layers` layers as the release does its 40, with every source that this needs: the
/// first two layers (one below 6 layers, none below 3) have a window only; from there to the middle
/// ratio 2 with a KV source every 6 layers; from the middle on ratio 1 with one KV and candidate
/// source and an index source every 4 layers. Engram sits in layer 1 and the last ratio-2 source,
/// the draft reads the last three layers. Engram tables are sized from the configuration's engram_*
/// values.
void set_schedule(ModelConfig& config, int64_t num_layers);

}  // namespace deepinfer::checkpoint
