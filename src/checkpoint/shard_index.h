#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace deepinfer::checkpoint {

/// Which files of a checkpoint directory hold its tensors.
struct ShardIndex {
  struct Entry {
    std::string tensor;  // as spelled in the index
    size_t file = 0;     // into files
  };
  std::vector<std::filesystem::path> files;  // full paths, ascending, each once
  std::vector<Entry> entries;                // empty without an index file
  std::optional<int64_t> total_size;  // metadata.total_size of the index, if it is a whole number
};

/// Reads DIR/model.safetensors.index.json; without one takes DIR/model.safetensors, else every
/// *.safetensors file. File names that leave the directory are refused; links inside it are
/// followed (a Hugging Face cache is made of them). Errors: kNotFound if there is no shard,
/// kInvalidFile naming the index and the entry.
ShardIndex read_shard_index(const std::filesystem::path& directory);

}  // namespace deepinfer::checkpoint
