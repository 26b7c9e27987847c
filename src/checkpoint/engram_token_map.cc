#include "checkpoint/engram_token_map.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"

namespace deepinfer::checkpoint {

std::optional<std::vector<int32_t>> read_engram_token_map(const std::filesystem::path& directory,
                                                          const ModelConfig& config) {
  const std::filesystem::path path = directory / "engram_token_map.json";
  if (!entry_exists(path)) return std::nullopt;
  constexpr int64_t kMaxBytesPerToken = 64;  // digits, separator and indentation
  const Json root = read_json_file(path, (config.vocab_size + 16) * kMaxBytesPerToken, 1);
  if (!root.is_array() || static_cast<int64_t>(root.size()) != config.vocab_size) {
    fail(ErrorCode::kInvalidFile, "{}: holds {} entries; it must be a list of {}, one per token",
         path.string(), root.size(), config.vocab_size);
  }
  std::vector<int32_t> map;
  map.reserve(root.size());
  for (const Json& item : root) {
    const auto limit = static_cast<uint64_t>(config.engram_compressed_vocab_size);
    if (!item.is_number_unsigned() || item.get<uint64_t>() >= limit) {
      fail(ErrorCode::kInvalidFile, "{}: entry {} is {}; it must be a whole number from 0 to {}",
           path.string(), map.size(), item.dump(-1, ' ', true).substr(0, 40), limit - 1);
    }
    map.push_back(item.get<int32_t>());
  }
  return map;
}

}  // namespace deepinfer::checkpoint
