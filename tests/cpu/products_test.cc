#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "cpu/dispatch.h"
#include "cpu/linear.h"
#include "tensor/quantize.h"
#include "tests/support/tensors.h"

// Every level's products against the definition in cpu/products.h, written here a second time in
// plain code, bit for bit.
namespace deepinfer::cpu {
namespace {

using testing::Random;
using testing::Weight;

constexpr uint64_t kSeed = 20261203;

/// a·b + c as vdpbf16ps adds it: one rounding, subnormal operands and results are zeros. In double:
/// the product is exact; the sum is rounded to odd, so that rounding it again to fp32 is right.
float fused(float a, float b, float c) {
  const auto flush = [](double x) { return std::fabs(x) < 0x1p-126 ? std::copysign(0.0, x) : x; };
  const double product = flush(a) * flush(b);
  const double addend = flush(c);
  double sum = product + addend;
  const double back = sum - product;
  const double error = (product - (sum - back)) + (addend - back);
  if (error != 0 && std::isfinite(sum) && (std::bit_cast<uint64_t>(sum) & 1) == 0) {
    const bool outwards = (error > 0) == (sum > 0);
    sum = std::bit_cast<double>(std::bit_cast<uint64_t>(sum) + (outwards ? 1 : uint64_t(-1)));
  }
  // Tiny after rounding with an unbounded exponent: 2^-126 (1 - 2^-25) is the midpoint to 2^-126.
  if (std::fabs(sum) < 0x1p-126 * (1 - 0x1p-25)) return static_cast<float>(std::copysign(0.0, sum));
  return static_cast<float>(sum);
}

float flushed_sum(float a, float b) {
  return fused(a, 1.0F, b);
}

/// The definition.
float defined_dot(const std::vector<float>& w, const std::vector<float>& x) {
  const auto k = static_cast<int64_t>(w.size());
  const auto at = [k](const std::vector<float>& v, int64_t i) {
    return i < k ? v[static_cast<size_t>(i)] : 0.0F;
  };
  float total = 0;
  for (int64_t begin = 0; begin < k; begin += kSegment) {
    float lanes[16] = {};
    for (int64_t s = begin; s < std::min(k, begin + kSegment); s += kStep) {
      for (int64_t l = 0; l < 16; ++l) {
        lanes[l] = fused(at(w, s + 2 * l + 1), at(x, s + 2 * l + 1), lanes[l]);
        lanes[l] = fused(at(w, s + 2 * l), at(x, s + 2 * l), lanes[l]);
      }
    }
    for (int width = 8; width > 0; width /= 2) {
      for (int l = 0; l < width; ++l) lanes[l] = flushed_sum(lanes[l], lanes[l + width]);
    }
    total = begin == 0 ? lanes[0] : flushed_sum(total, lanes[0]);
  }
  return total;
}

/// Row `o` of a weight, dequantised exactly (in double where fp32 would not do).
std::vector<float> weight_row(const QuantView& w, int64_t o) {
  std::vector<float> row;
  for (int64_t i = 0; i < w.cols(); ++i) {
    if (w.weight.dtype() == DType::kF32) {
      row.push_back(w.weight.row<const float>(o)[i]);
    } else if (w.weight.dtype() == DType::kBF16) {
      row.push_back(to_float(w.weight.row<const BFloat16>(o)[i]));
    } else {
      const auto* codes = w.weight.row<const uint8_t>(o);
      const float value = w.weight.dtype() == DType::kE4M3
                              ? e4m3_to_float(codes[i])
                              : kE2M1Values[(codes[i / 2] >> (i % 2 * 4)) & 15];
      const int exponent = w.scale.row<const uint8_t>(o / w.scale_rows)[i / 32] - 127;
      row.push_back(std::ldexp(value, exponent));
    }
  }
  return row;
}

std::vector<float> input_row(const Tensor& x, int64_t b, InputRounding rounding) {
  std::vector<float> row;
  for (int64_t i = 0; i < x.shape()[1]; ++i) {
    row.push_back(to_float(x.view().row<const BFloat16>(b)[i]));
  }
  if (rounding == InputRounding::kFp8) round_trip_fp8(row);
  return row;
}

Weight plain(Tensor values) {
  return {std::move(values), {}, 1};
}

void expect_same(const Tensor& got, const std::vector<float>& want, const std::string& what) {
  ASSERT_EQ(got.shape().num_elements(), static_cast<int64_t>(want.size()));
  int wrong = 0;
  for (size_t i = 0; i < want.size() && wrong < 3; ++i) {
    const float value = got.as<float>()[i];
    if (std::isnan(value) && std::isnan(want[i])) continue;  // payloads are nobody's promise
    if (std::bit_cast<uint32_t>(value) == std::bit_cast<uint32_t>(want[i])) continue;
    ADD_FAILURE() << what << ": element " << i << " is " << value << ", defined " << want[i];
    ++wrong;
  }
}

/// The product at every level, 1 and 3 threads, against the definition.
void check_product(const Weight& weight, const Tensor& x, InputRounding rounding,
                   const std::string& name) {
  const int64_t rows = x.shape()[0];
  const int64_t outputs = weight.view().rows();
  std::vector<float> want;
  std::vector<std::vector<float>> w;
  for (int64_t o = 0; o < outputs; ++o) w.push_back(weight_row(weight.view(), o));
  for (int64_t b = 0; b < rows; ++b) {
    const std::vector<float> input = input_row(x, b, rounding);
    for (int64_t o = 0; o < outputs; ++o) {
      want.push_back(defined_dot(w[static_cast<size_t>(o)], input));
    }
  }
  for (const Kernels* kernels : available_kernels()) {
    for (const int threads : {1, 3}) {
      ThreadPool pool(threads);
      Workspace workspace(threads);
      const Context context{pool, *kernels, workspace};
      const Tensor y(DType::kF32, {rows, outputs});
      {
        const FlushDenormals flush;
        linear(context, {.weight = weight.view(), .x = x, .y = y, .rounding = rounding});
      }
      expect_same(y, want,
                  fmt::format("{} {}, {} threads, seed {}", name, kernels->level, threads, kSeed));
    }
  }
}

struct Size {
  int64_t rows, outputs, k;
};

TEST(Products, PlainWeightsOfAnySizeFollowTheDefinition) {
  Random random(kSeed);
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    for (const Size& s : {Size{1, 1, 1}, Size{1, 5, 31}, Size{2, 33, 127}, Size{3, 7, 128},
                          Size{4, 34, 129}, Size{5, 3, 1023}, Size{7, 37, 1057}, Size{13, 64, 96},
                          Size{130, 35, 65}, Size{0, 4, 64}}) {
      check_product(plain(random.tensor(dtype, {s.outputs, s.k})),
                    random.tensor(DType::kBF16, {s.rows, s.k}), InputRounding::kNone,
                    fmt::format("{} {}x{}x{}", to_string(dtype), s.rows, s.outputs, s.k));
    }
  }
}

TEST(Products, QuantisedWeightsOfAnySizeFollowTheDefinition) {
  Random random(kSeed + 1);
  for (const Size& s : {Size{1, 1, 32}, Size{1, 70, 1056}, Size{2, 33, 2080}, Size{3, 6, 96},
                        Size{4, 129, 64}, Size{6, 31, 1024}, Size{27, 40, 128}}) {
    const Tensor x = random.tensor(DType::kBF16, {s.rows, s.k});
    const std::string size = fmt::format("{}x{}x{}", s.rows, s.outputs, s.k);
    for (const InputRounding rounding : {InputRounding::kNone, InputRounding::kFp8}) {
      check_product(testing::random_fp8(random, s.outputs, s.k), x, rounding, "FP8 " + size);
      check_product(testing::random_fp8(random, s.outputs, s.k, 1), x, rounding, "FP8/1 " + size);
      check_product(testing::random_fp4(random, s.outputs, s.k), x, rounding, "FP4 " + size);
    }
  }
}

/// Random bits: every exponent, subnormals, infinities; NaN where asked.
Tensor wild(Random& random, int64_t rows, int64_t k) {
  Tensor x(DType::kBF16, {rows, k});
  for (int64_t i = 0; i < rows * k; ++i) {
    auto bits = static_cast<uint16_t>(random.below(65536));
    if ((bits & 0x7FFF) > 0x7F80) bits = static_cast<uint16_t>(bits & 0x8000);
    x.as<BFloat16>()[i] = {bits};
  }
  return x;
}

/// Values whose products lie about the smallest normal number, where flushing decides.
Tensor tiny(Random& random, int64_t rows, int64_t k, int exponent) {
  Tensor x(DType::kBF16, {rows, k});
  for (int64_t i = 0; i < rows * k; ++i) {
    const int spread = static_cast<int>(random.below(9)) - 4;
    x.as<BFloat16>()[i] = to_bfloat16(std::ldexp(random.normal(), exponent + spread));
  }
  return x;
}

TEST(Products, ExtremeValuesFollowTheDefinition) {
  Random random(kSeed + 2);
  for (const int64_t rows : {1, 6}) {
    check_product(plain(wild(random, 9, 96)), wild(random, rows, 96), InputRounding::kNone, "wild");
    for (const int exponent : {-64, -63, -62, -58}) {
      check_product(plain(tiny(random, 40, 128, exponent)), tiny(random, rows, 128, -63),
                    InputRounding::kNone, "tiny");
    }
  }
}

TEST(Products, EveryScaleFollowsTheDefinition) {
  Random random(kSeed + 3);
  for (const int64_t rows : {1, 6}) {
    for (const bool fp4 : {false, true}) {
      const Weight weight =
          fp4 ? testing::random_fp4(random, 8, 4096) : testing::random_fp8(random, 64, 4096);
      const int64_t scales = weight.scales.shape().num_elements();
      for (int64_t i = 0; i < scales; ++i) {
        weight.scales.as<uint8_t>()[i] = static_cast<uint8_t>(i % 255);
      }
      check_product(weight, random.tensor(DType::kBF16, {rows, 4096}), InputRounding::kFp8,
                    "scales");
      check_product(weight, tiny(random, rows, 4096, -20), InputRounding::kNone, "scales, small x");
    }
  }
}

TEST(Products, RoundedInputsAreThoseOfTheQuantiser) {
  Random random(kSeed + 4);
  // An identity: the product gives the rounded inputs back.
  Tensor identity(DType::kF32, {32, 32});
  for (int64_t i = 0; i < 32; ++i) identity.as<float>()[33 * i] = 1;
  const Weight weight = plain(std::move(identity));
  for (int i = 0; i < 40; ++i) {
    Tensor x = tiny(random, 50, 32, 5 * i - 100);
    for (int64_t j = 0; j < 100; ++j) x.as<BFloat16>()[random.below(1600)] = {};
    check_product(weight, x, InputRounding::kFp8, fmt::format("2^{}", 5 * i - 100));
  }
}

TEST(Products, RowsDoNotDependOnTheirNumber) {
  Random random(kSeed + 5);
  const Weight weight = testing::random_fp8(random, 70, 2048);
  const Tensor x = random.tensor(DType::kBF16, {600, 2048});
  for (const Kernels* kernels : available_kernels()) {
    if (std::string_view(kernels->level) == "portable") continue;  // slow, and the same template
    ThreadPool pool(2);
    Workspace workspace(2);
    const Context context{pool, *kernels, workspace};
    const FlushDenormals flush;
    const auto run = [&](int64_t first, int64_t rows) {
      Tensor y(DType::kBF16, {rows, 70});
      linear(context, {.weight = weight.view(),
                       .x = x.view().slice(first, rows),
                       .y = y,
                       .rounding = InputRounding::kFp8});
      return y;
    };
    const Tensor all = run(0, 600);
    for (const int64_t rows : {1, 2, 3, 4, 5, 11, 48, 97}) {
      const int64_t first = random.below(600 - rows);
      const Tensor some = run(first, rows);
      EXPECT_EQ(std::memcmp(some.view().data(), all.view().row<BFloat16>(first),
                            static_cast<size_t>(rows * 70 * 2)),
                0)
          << kernels->level << ", rows " << first << " + " << rows;
    }
  }
}

}  // namespace
}  // namespace deepinfer::cpu
