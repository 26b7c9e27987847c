#include "checkpoint/shard_index.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"

namespace deepinfer::checkpoint {
namespace {

constexpr const char* kIndexName = "model.safetensors.index.json";
constexpr const char* kSingleName = "model.safetensors";
constexpr int64_t kMaxIndexBytes = int64_t{64} << 20;  // the release's has about 8 MB
constexpr int kMaxIndexDepth = 8;

bool stays_inside(const std::filesystem::path& name) {
  return !name.empty() && name.is_relative() && name.has_filename() &&
         name.native().find('\0') == std::string::npos &&
         std::ranges::none_of(
             name, [](const std::filesystem::path& part) { return part == ".." || part == "."; });
}

ShardIndex from_index_file(const std::filesystem::path& directory,
                           const std::filesystem::path& path) {
  const Json root = read_json_file(path, kMaxIndexBytes, kMaxIndexDepth);
  const auto weight_map = root.is_object() ? root.find("weight_map") : root.end();
  if (weight_map == root.end() || !weight_map->is_object() || weight_map->empty()) {
    fail(ErrorCode::kInvalidFile,
         "{}: must be an object whose \"weight_map\" names the file of every tensor",
         path.string());
  }
  ShardIndex index;
  std::map<std::string, size_t> files;
  for (const auto& [tensor, file] : weight_map->items()) {
    if (!file.is_string() || !stays_inside(file.get<std::string>())) {
      fail(ErrorCode::kInvalidFile,
           "{}: tensor \"{}\" is said to be in {}, which is not a file of this directory",
           path.string(), tensor.substr(0, 200), file.dump(-1, ' ', true).substr(0, 200));
    }
    files.emplace(file.get<std::string>(), 0);
  }
  for (auto& [name, position] : files) {
    position = index.files.size();
    index.files.push_back(directory / name);
    if (!entry_exists(index.files.back())) {
      fail(ErrorCode::kInvalidFile, "{}: names the file {}, which does not exist", path.string(),
           name);
    }
  }
  for (const auto& [tensor, file] : weight_map->items()) {
    index.entries.push_back({tensor, files.at(file.get<std::string>())});
  }
  const auto metadata = root.find("metadata");
  if (metadata != root.end() && metadata->is_object()) {
    const auto total = metadata->find("total_size");
    if (total != metadata->end() && total->is_number_integer())
      index.total_size = total->get<int64_t>();
  }
  return index;
}

}  // namespace

ShardIndex read_shard_index(const std::filesystem::path& directory) {
  std::error_code ignored;  // what cannot be looked at is no directory
  if (!std::filesystem::is_directory(directory, ignored)) {
    fail(ErrorCode::kNotFound, "{}: is not a directory", directory.string());
  }
  const std::filesystem::path index_path = directory / kIndexName;
  if (entry_exists(index_path)) {
    return from_index_file(directory, index_path);
  }
  ShardIndex index;
  if (entry_exists(directory / kSingleName)) {
    index.files.push_back(directory / kSingleName);
    return index;
  }
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.path().extension() == ".safetensors") index.files.push_back(entry.path());
  }
  std::ranges::sort(index.files);
  if (index.files.empty()) {
    fail(ErrorCode::kNotFound, "{}: has no {} and no *.safetensors file", directory.string(),
         kIndexName);
  }
  return index;
}

}  // namespace deepinfer::checkpoint
