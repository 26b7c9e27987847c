#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "tensor/tensor.h"

namespace deepinfer::testing {

/// fp32 or bf16 elements as fp32, row-major (axis 0 may be strided).
std::vector<float> to_floats(const TensorView& view);
/// A tensor of `dtype` (fp32, or bf16 with rounding) from row-major values.
Tensor to_tensor(std::span<const float> values, DType dtype, const Shape& shape);
Tensor to_tensor(std::span<const int32_t> values, const Shape& shape);
Tensor to_tensor(std::span<const int64_t> values, const Shape& shape);

/// Random operands from a seed: the same on every machine. Tests print the seed with SCOPED_TRACE.
class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}

  /// Uniform in [0, 1).
  float uniform();
  int64_t below(int64_t bound);
  /// About normal, standard deviation `scale`.
  float normal(float scale = 1);
  std::vector<float> normals(int64_t count, float scale = 1);
  Tensor tensor(DType dtype, const Shape& shape, float scale = 1);

 private:
  std::mt19937_64 engine_;
};

/// An owned weight and the view that operations take.
struct Weight {
  Tensor values;
  Tensor scales;
  int64_t scale_rows = 1;
  QuantView view() const { return {values.view(), scales.view(), scale_rows}; }
};
/// Random finite codes with scales that make products of about unit size. FP8: 32×32 scales.
Weight random_fp8(Random& random, int64_t out, int64_t in, int64_t scale_rows = 32);
Weight random_fp4(Random& random, int64_t out, int64_t in);

}  // namespace deepinfer::testing
