#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/safetensors.h"
#include "tensor/tensor.h"

namespace deepinfer::testing {

/// A file of tests/data.
std::filesystem::path data_path(std::string_view name);
/// A file of the large goldens, $DEEPINFER_TEST_DATA/name; nothing if the variable is not set.
std::optional<std::filesystem::path> large_data_path(std::string_view name);

/// A safetensors file of golden values or weights. A missing name throws.
class Golden {
 public:
  explicit Golden(const std::filesystem::path& path)
      : file_(checkpoint::SafetensorsFile::open(path)) {}

  bool has(std::string_view name) const { return file_.contains(name); }
  TensorView view(std::string_view name) const { return file_.tensor(name); }
  Shape shape(std::string_view name) const { return view(name).shape(); }
  /// F32 or BF16 as fp32.
  std::vector<float> floats(std::string_view name) const;
  float scalar(std::string_view name) const { return floats(name).at(0); }
  /// I32, I64, U8 or U16.
  std::vector<int64_t> ints(std::string_view name) const;
  /// One-byte values read as `dtype`: codes and scales are stored as U8.
  TensorView bytes_as(std::string_view name, DType dtype) const;
  /// Floats as a tensor of `dtype` (fp32 or bf16) and `shape`; fails if bf16 would lose something.
  Tensor tensor(std::string_view name, DType dtype, const Shape& shape) const;
  Tensor tensor(std::string_view name, DType dtype) const {
    return tensor(name, dtype, shape(name));
  }
  /// NAME.weight and NAME.scale of a product: FP8 with 32×32 scales, or FP4 if `fp4`.
  QuantView fp8(std::string_view name) const;
  QuantView fp4(std::string_view name) const;

 private:
  checkpoint::SafetensorsFile file_;
};

}  // namespace deepinfer::testing
