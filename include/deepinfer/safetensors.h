#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "deepinfer/error.h"

namespace deepinfer {

/// A tensor of a safetensors file that is being written.
struct TensorEntry {
  std::string name;            ///< Unique, valid UTF-8, not "__metadata__".
  std::string dtype;           ///< safetensors spelling: "F32", "I32", "I64", "U8".
  std::vector<int64_t> shape;  ///< Row-major; at most five dimensions.
};

/// Writes a safetensors file as a stream: tensors are declared first, then their bytes are given.
/// The file appears under its name only at commit(); without it nothing is left behind. Used by one
/// thread.
class TensorFile {
 public:
  /// Errors: kInvalidArgument (a name that is empty, reserved or not unique, an unknown dtype, a
  /// bad shape), kIo.
  TensorFile(const std::filesystem::path& path, const std::vector<TensorEntry>& tensors);
  ~TensorFile();

  /// The order in which the bytes must come, as indices into the declared tensors: by descending
  /// element size, in declared order within one size.
  const std::vector<size_t>& order() const;
  /// Appends little-endian bytes; a tensor may be given in any number of pieces. Errors: kIo;
  /// kInvalidArgument when there are more bytes than declared.
  void write(std::span<const std::byte> bytes);
  /// Makes the file durable and visible. Errors: kIo; kInvalidArgument when bytes are missing.
  void commit();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace deepinfer
