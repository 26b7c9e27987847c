#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "checkpoint/config.h"

namespace deepinfer::checkpoint {

/// Reads DIR/engram_token_map.json, a list with the compressed id of every token
/// (spec/checkpoint.md §5.2); nothing if the folder has none. Errors: kInvalidFile if the size is
/// not vocab_size or an id is not below engram_compressed_vocab_size.
std::optional<std::vector<int32_t>> read_engram_token_map(const std::filesystem::path& directory,
                                                          const ModelConfig& config);

}  // namespace deepinfer::checkpoint
