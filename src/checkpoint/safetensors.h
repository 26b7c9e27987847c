#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "tensor/tensor.h"

namespace deepinfer::checkpoint {

/// The largest header that is read. The release has 260 KB per shard; a checkpoint in one file has
/// about 12 MB.
inline constexpr int64_t kMaxHeaderBytes = int64_t{32} << 20;

/// One tensor as a safetensors header describes it.
struct HeaderEntry {
  std::string name;
  std::string dtype_name;  // as spelled in the file
  std::optional<DType>
      dtype;  // nothing: a dtype of the format that this project does not compute with
  std::vector<int64_t> shape;  // extents >= 0
  int64_t begin = 0;           // byte offsets from the start of the file
  int64_t end = 0;

  int64_t num_bytes() const { return end - begin; }
};

/// Parses and checks the header of a safetensors file given whole in memory; reads nothing but the
/// header. `source` names the file in errors. Accepts only files whose tensors cover the payload
/// without overlap or gap, each as long as its shape and dtype say and aligned to its element size.
/// Result in file order. Errors: kInvalidFile.
std::vector<HeaderEntry> parse_safetensors_header(std::span<const std::byte> file,
                                                  std::string_view source);

/// A memory-mapped safetensors file. Immutable; views live as long as the object (moving it keeps
/// them valid).
class SafetensorsFile {
 public:
  /// Errors: those of MappedFile::open and parse_safetensors_header.
  static SafetensorsFile open(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return file_.path(); }
  std::span<const std::byte> bytes() const { return file_.bytes(); }
  /// Every tensor, in file order.
  const std::vector<HeaderEntry>& entries() const { return entries_; }
  bool contains(std::string_view name) const { return index_.contains(name); }
  /// The tensor of that name. The memory is read-only although the view's type does not say so.
  /// Errors: kNotFound; kInvalidFile if its dtype or rank has no TensorView.
  TensorView tensor(std::string_view name) const;
  TensorView view(const HeaderEntry& entry) const;

 private:
  MappedFile file_;
  std::vector<HeaderEntry> entries_;
  std::map<std::string, size_t, std::less<>> index_;
};

}  // namespace deepinfer::checkpoint
