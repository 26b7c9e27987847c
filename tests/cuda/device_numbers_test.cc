// The device's elementary functions, number formats and quantisers, compiled for the host: the
// kernels use the same code.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "cuda/device/quantize.cuh"
#include "cuda/device/rope.cuh"
#include "cuda/device/select.cuh"
#include "ops/reference/common.h"
#include "ops/rope_table.h"
#include "tensor/quantize.h"

namespace deepinfer::cuda {
namespace {

constexpr double kTolerance = 0x1p-21;  // spec/model.md §10 item 1
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr uint32_t kSeed = 20261203;

/// Every `step`-th fp32 value of [low, high] (of one sign).
template <typename Check>
void for_values(float low, float high, uint32_t step, Check&& check) {
  const uint32_t first = std::min(to_bits(low), to_bits(high));
  const uint32_t last = std::max(to_bits(low), to_bits(high));
  for (uint64_t bits = first; bits <= last; bits += step) {
    check(from_bits(static_cast<uint32_t>(bits)));
  }
}

void expect_relative(float got, double want, float x) {
  ASSERT_LE(std::fabs(static_cast<double>(got) - want), kTolerance * std::fabs(want))
      << "x " << x << ", got " << got << ", want " << want;
}

TEST(DeviceMath, ExpIsAccurate) {
  const auto check = [](float x) { expect_relative(exp_f32(x), std::exp(double{x}), x); };
  for_values(-0.0F, -87.3F, 1009, check);
  for_values(0.0F, 88.72F, 1009, check);
  EXPECT_EQ(exp_f32(0), 1.0F);
  EXPECT_EQ(exp_f32(-1e30F), 0.0F);
  EXPECT_EQ(exp_f32(-kInf), 0.0F);
  EXPECT_EQ(exp_f32(1e30F), kInf);
  EXPECT_EQ(exp_f32(kInf), kInf);
  EXPECT_TRUE(std::isnan(exp_f32(kNan)));
  // Subnormal results: to a few of their steps.
  for_values(-87.4F, -104.0F, 101, [](float x) {
    ASSERT_NEAR(static_cast<double>(exp_f32(x)), std::exp(double{x}), 0x1p-148);
  });
}

TEST(DeviceMath, LogIsAccurate) {
  for_values(0x1p-149F, 0x1p127F, 10007,
             [](float x) { expect_relative(log_f32(x), std::log(double{x}), x); });
  for_values(0.5F, 2.0F, 37, [](float x) { expect_relative(log_f32(x), std::log(double{x}), x); });
  EXPECT_EQ(log_f32(0), -kInf);
  EXPECT_EQ(log_f32(kInf), kInf);
  EXPECT_TRUE(std::isnan(log_f32(-1)));
  EXPECT_TRUE(std::isnan(log_f32(kNan)));
}

TEST(DeviceMath, CompositionsAreAccurate) {
  for_values(0x1p-126F, 0x1p100F, 10007,
             [](float x) { expect_relative(log1p_f32(x), std::log1p(double{x}), x); });
  const auto sigmoid = [](float x) {
    expect_relative(sigmoid_f32(x), 1 / (1 + std::exp(-double{x})), x);
  };
  for_values(0.0F, 100.0F, 5003, sigmoid);
  for_values(-0.0F, -80.0F, 5003, sigmoid);
  const auto softplus = [](float x) {
    expect_relative(softplus_f32(x), std::log1p(std::exp(double{x})), x);
  };
  for_values(0.0F, 20.0F, 5003, softplus);
  for_values(-0.0F, -80.0F, 5003, softplus);
  EXPECT_EQ(softplus_f32(30), 30.0F);
}

void expect_same_bits(float got, float want) {
  if (std::isnan(want)) {
    ASSERT_TRUE(std::isnan(got));
  } else {
    ASSERT_EQ(to_bits(got), to_bits(want));
  }
}

TEST(DeviceFormats, DecodeEveryCode) {
  for (uint32_t code = 0; code < 256; ++code) {
    expect_same_bits(decode_e4m3(static_cast<uint8_t>(code)),
                     e4m3_to_float(static_cast<uint8_t>(code)));
  }
  for (uint32_t code = 0; code < 16; ++code) expect_same_bits(decode_e2m1(code), kE2M1Values[code]);
}

TEST(DeviceFormats, EncodeLikeTheTensorRoom) {
  const auto check = [](float x) {
    ASSERT_EQ(encode_e4m3(x), float_to_e4m3(x)) << x;
    if (std::isnan(x)) return;
    ASSERT_EQ(encode_e2m1(x), uint32_t{float_to_e2m1(x)}) << x;
  };
  for (uint32_t bits = 0; bits < 0x10000; ++bits) check(from_bits(bits << 16));
  for_values(0x1p-12F, 1000.0F, 499, check);
  for_values(-0x1p-12F, -1000.0F, 499, check);
  for (const float x : {0.25F, 0.75F, 1.25F, 1.75F, 2.5F, 3.5F, 5.0F, 464.0F, 0x1p-10F}) {
    for (const float near : {std::nextafter(x, 0.0F), x, std::nextafter(x, kInf)}) {
      check(near);
      check(-near);
    }
  }
}

float value_of(uint32_t pair, int half) {
  return from_bits(half == 0 ? pair << 16 : pair & 0xFFFF0000U);
}

TEST(DeviceFormats, PackedCodesBecomeBf16) {
  for (uint32_t codes = 0; codes < 0x10000; ++codes) {
    const Bf16x4 values = e2m1x4_to_bf16(codes);
    for (int i = 0; i < 4; ++i) {
      expect_same_bits(value_of(i < 2 ? values.low : values.high, i % 2),
                       kE2M1Values[(codes >> (4 * i)) & 0xF]);
    }
  }
  for (uint32_t code = 0; code < 256; ++code) {
    if ((code & 0x7F) == 0x7F) continue;
    const uint32_t codes = code | ((code ^ 0x80) << 8) | (code << 16) | (1U << 24);
    const Bf16x4 small = e4m3x4_to_small_bf16(codes);
    for (int i = 0; i < 4; ++i) {
      const auto byte = static_cast<uint8_t>(codes >> (8 * i));
      expect_same_bits(value_of(i < 2 ? small.low : small.high, i % 2) * 0x1p120F,
                       e4m3_to_float(byte));
    }
  }
}

/// A block's largest magnitude as the kernels find it.
float largest(std::span<const float> block, float smallest) {
  float amax = smallest;
  for (const float x : block) amax = std::fmax(amax, std::fabs(x));
  return amax;
}

TEST(DeviceQuantize, BlocksLikeTheTensorRoom) {
  SCOPED_TRACE(::testing::Message() << "seed " << kSeed);
  std::mt19937 random(kSeed);
  std::normal_distribution<float> normal;
  std::uniform_int_distribution<int> exponent(-40, 40);
  for (int run = 0; run < 2000; ++run) {
    std::array<float, 32> x{};
    const float scale = run == 0 ? 0 : std::ldexp(1.0F, exponent(random));
    for (float& v : x) v = round_to_bfloat16(normal(random) * scale);
    std::array<uint8_t, 32> codes{};
    std::array<uint8_t, 2> scales{};

    quantize_fp8(x, codes.data(), scales.data());
    const uint8_t fp8 = fp8_scale(largest(x, kFp8SmallestMax));
    ASSERT_EQ(fp8, scales[0]);
    for (size_t i = 0; i < 32; ++i) ASSERT_EQ(fp8_code(x[i], e8m0_to_float(fp8)), codes[i]);

    quantize_fp4_index(x, codes.data(), scales.data());
    const uint8_t index = fp4_index_scale(largest(x, kFp4IndexSmallestMax));
    ASSERT_EQ(index, scales[0]);
    for (size_t i = 0; i < 32; ++i) {
      ASSERT_EQ(fp4_code(x[i], e8m0_to_float(index)), (codes[i / 2] >> (i % 2 * 4)) & 0xFU);
    }

    quantize_fp4_kv(x, codes.data(), scales.data());
    for (size_t i = 0; i < 32; ++i) {
      const std::span block = std::span(x).subspan(i / 16 * 16, 16);
      const uint8_t entry = fp4_entry_scale(largest(block, kFp4EntrySmallestMax));
      ASSERT_EQ(entry, scales[i / 16]);
      ASSERT_EQ(fp4_code(x[i], decode_e4m3(entry)), (codes[i / 2] >> (i % 2 * 4)) & 0xFU);
    }
  }
}

TEST(DeviceRope, RotatesLikeTheReference) {
  const std::vector<float> inv_freq =
      ops::rope_inv_freq(64, 160000, ops::YarnScaling{.factor = 16});
  std::vector<float> frequencies = inv_freq;
  const TensorView view(frequencies.data(), DType::kF32, {32});
  std::mt19937 random(kSeed);
  std::normal_distribution<float> normal;
  const ops::reference::Context context{ops::Numerics::kEngine, nullptr};
  for (const int64_t position : {0, 1, 77, 65535, 1 << 20}) {
    for (const bool inverse : {false, true}) {
      std::vector<float> head(128);
      for (float& v : head) v = round_to_bfloat16(normal(random));
      std::vector<float> want = head;
      ops::reference::rotate(context, want, {view}, position, inverse);
      for (size_t pair = 0; pair < 32; ++pair) {
        const Rotation rotation = rotation_of(position, inv_freq[pair], inverse);
        const float a = head[64 + 2 * pair];
        const float b = head[64 + 2 * pair + 1];
        EXPECT_EQ(rotated(rotation, a, b, false), want[64 + 2 * pair]);
        EXPECT_EQ(rotated(rotation, b, a, true), want[64 + 2 * pair + 1]);
      }
    }
  }
}

TEST(DeviceSelect, KeysKeepTheOrderOfScores) {
  const std::vector<float> ascending = {-kInf,     -1e30F,    -1.0F, -0x1p-149F, 0.0F,
                                        0x1p-149F, 0x1p-126F, 1.0F,  1e30F,      kInf};
  uint32_t before = 0;  // what does not compete
  for (const float score : ascending) {
    const uint32_t key = order_key(score);
    EXPECT_GT(key, before) << score;
    EXPECT_EQ(score_of_key(key), score);
    before = key;
  }
  EXPECT_EQ(order_key(-0.0F), order_key(0.0F));
}

TEST(DeviceSelect, DigitsMakeUpTheKey) {
  std::mt19937 random(kSeed);
  for (int run = 0; run < 1000; ++run) {
    const auto key = static_cast<uint32_t>(random());
    uint32_t prefix = 0;
    for (int digit = 0; digit < kDigits; ++digit) {
      EXPECT_TRUE(has_prefix(key, prefix, digit));
      ASSERT_LT(digit_of(key, digit), static_cast<uint32_t>(kBins));
      prefix |= digit_of(key, digit) << digit_shift(digit);
      // A key that differs in this digit loses the prefix.
      EXPECT_FALSE(digit + 1 < kDigits &&
                   has_prefix(key ^ (1U << digit_shift(digit)), prefix, digit + 1));
    }
    EXPECT_EQ(prefix, key);
  }
}

}  // namespace
}  // namespace deepinfer::cuda
