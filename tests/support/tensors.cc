#include "tests/support/tensors.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace deepinfer::testing {
namespace {

template <typename T>
Tensor copied(std::span<const T> values, DType dtype, const Shape& shape) {
  Tensor tensor(dtype, shape);
  DEEPINFER_CHECK(static_cast<int64_t>(values.size()) == shape.num_elements(), "{} values as {}",
                  values.size(), shape.to_string());
  std::ranges::copy(values, tensor.as<T>());
  return tensor;
}

/// e8m0 codes around the exponent that makes rows of `in` unit values sum up to about one.
void fill_scales(Random& random, const Tensor& scales, int64_t in, int64_t magnitude_log2) {
  const auto half_log2 = static_cast<int64_t>(std::bit_width(static_cast<uint64_t>(in))) / 2;
  for (int64_t i = 0; i < scales.shape().num_elements(); ++i) {
    scales.as<uint8_t>()[i] =
        static_cast<uint8_t>(127 - half_log2 - magnitude_log2 + random.below(3) - 1);
  }
}

}  // namespace

std::vector<float> to_floats(const TensorView& view) {
  std::vector<float> values;
  if (view.shape().num_elements() == 0) return values;
  const int64_t size = view.shape().num_elements() / view.dim(0);
  for (int64_t row = 0; row < view.dim(0); ++row) {
    for (int64_t i = 0; i < size; ++i) {
      values.push_back(view.dtype() == DType::kBF16 ? to_float(view.row<const BFloat16>(row)[i])
                                                    : view.row<const float>(row)[i]);
    }
  }
  return values;
}

Tensor to_tensor(std::span<const float> values, DType dtype, const Shape& shape) {
  if (dtype == DType::kF32) return copied(values, dtype, shape);
  std::vector<BFloat16> rounded;
  for (const float v : values) rounded.push_back(to_bfloat16(v));
  return copied(std::span<const BFloat16>(rounded), DType::kBF16, shape);
}

Tensor to_tensor(std::span<const int32_t> values, const Shape& shape) {
  return copied(values, DType::kI32, shape);
}

Tensor to_tensor(std::span<const int64_t> values, const Shape& shape) {
  return copied(values, DType::kI64, shape);
}

float Random::uniform() {
  return static_cast<float>(engine_() >> 40) * 0x1p-24F;
}

int64_t Random::below(int64_t bound) {
  return static_cast<int64_t>(engine_() % static_cast<uint64_t>(bound));
}

float Random::normal(float scale) {
  // Irwin–Hall: the sum of twelve uniforms has variance 1. No libm, so the same everywhere.
  float sum = -6;
  for (int i = 0; i < 12; ++i) sum += uniform();
  return sum * scale;
}

std::vector<float> Random::normals(int64_t count, float scale) {
  std::vector<float> values(static_cast<size_t>(count));
  for (float& v : values) v = normal(scale);
  return values;
}

Tensor Random::tensor(DType dtype, const Shape& shape, float scale) {
  return to_tensor(normals(shape.num_elements(), scale), dtype, shape);
}

Weight random_fp8(Random& random, int64_t out, int64_t in, int64_t scale_rows) {
  Weight weight{Tensor(DType::kE4M3, {out, in}),
                Tensor(DType::kE8M0, {(out + scale_rows - 1) / scale_rows, in / 32}), scale_rows};
  for (int64_t i = 0; i < out * in; ++i) {
    weight.values.as<uint8_t>()[i] = float_to_e4m3(random.normal(64));
  }
  fill_scales(random, weight.scales, in, 6);
  return weight;
}

Weight random_fp4(Random& random, int64_t out, int64_t in) {
  Weight weight{Tensor(DType::kE2M1x2, {out, in / 2}), Tensor(DType::kE8M0, {out, in / 32}), 1};
  for (int64_t i = 0; i < out * in / 2; ++i) {
    weight.values.as<uint8_t>()[i] = static_cast<uint8_t>(random.below(256));
  }
  fill_scales(random, weight.scales, in, 1);
  return weight;
}

}  // namespace deepinfer::testing
