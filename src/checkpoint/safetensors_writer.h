#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.h"
#include "tensor/tensor.h"

namespace deepinfer::checkpoint {

/// What a tensor will be, declared before its bytes are written.
struct TensorSpec {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;

  int64_t num_bytes() const { return shape.num_elements() * size_of(dtype); }
};

/// The bytes in front of the payload: header length and JSON header of tensors stored in the given
/// order, padded to a multiple of 8.
std::string safetensors_preamble(std::span<const TensorSpec> tensors);

/// Writes a safetensors file as a stream. Tensors are declared first and stored by descending
/// element size (so that each is aligned), in declared order within one size; their bytes must come
/// in that order: tensors() says it. The file appears under its name only at commit().
class SafetensorsWriter {
 public:
  /// Errors: kIo. Names must be unique valid UTF-8 (a bug otherwise).
  SafetensorsWriter(const std::filesystem::path& path, std::vector<TensorSpec> tensors);

  /// The declared tensors in file order.
  const std::vector<TensorSpec>& tensors() const { return tensors_; }
  /// Appends payload bytes; a tensor may be given in any number of pieces. Errors: kIo.
  void write(std::span<const std::byte> bytes);
  /// Appends zeros as a hole of a sparse file.
  void skip(int64_t bytes);
  /// Makes the file durable and visible. All declared bytes must have been written.
  void commit();

 private:
  std::vector<TensorSpec> tensors_;
  FileWriter file_;
  int64_t remaining_bytes_ = 0;
};

/// Writes whole host tensors in one call: `{{"logits", view}, …}`. Errors: kIo.
void write_safetensors(const std::filesystem::path& path,
                       std::span<const std::pair<std::string, TensorView>> tensors);

}  // namespace deepinfer::checkpoint
