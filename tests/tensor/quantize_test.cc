#include "tensor/quantize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/support/compare.h"
#include "tests/support/tensors.h"
#include "tests/tensor/golden_checks.h"

namespace deepinfer {
namespace {

using testing::bitwise_equal;
using testing::Golden;
using testing::Random;

TEST(Quantise, MatchesGoldens) {
  check_cache_quantisers(Golden(testing::data_path("ops.safetensors")));
}

TEST(Quantise, MatchesReleasedGoldensOfRotatedRows) {
  const Golden golden(testing::data_path("ops_released.safetensors"));
  for (const std::string name : {"rope_main", "rope_compress"}) {
    std::vector<float> fp8 = golden.floats(name + ".y");
    std::vector<float> fp4 = fp8;
    std::vector<float> kv = fp8;
    std::vector<uint8_t> codes(fp8.size());
    std::vector<uint8_t> scales(fp8.size());
    round_trip_fp8(fp8);
    quantize_fp4_index(fp4, codes.data(), scales.data());
    dequantize_fp4_index(codes.data(), scales.data(), fp4);
    quantize_fp4_kv(kv, codes.data(), scales.data());
    dequantize_fp4_kv(codes.data(), scales.data(), kv);
    EXPECT_TRUE(bitwise_equal(fp8, golden.floats(name + ".y_fp8")));
    EXPECT_TRUE(bitwise_equal(fp4, golden.floats(name + ".y_fp4")));
    EXPECT_TRUE(bitwise_equal(kv, golden.floats(name + ".y_fp4_e4m3")));
  }
}

TEST(Quantise, MatchesReleasedGoldensOfProductInputs) {
  const Golden golden(testing::data_path("ops_released.safetensors"));
  for (const auto& [in, out] :
       {std::pair{"linear.x", "linear.x_fp8"}, std::pair{"expert.x", "expert.x_fp8"},
        std::pair{"expert.h", "expert.h_fp8"}}) {
    std::vector<float> x = golden.floats(in);
    round_trip_fp8(x);
    EXPECT_TRUE(bitwise_equal(x, golden.floats(out))) << in;
  }
}

TEST(Quantise, BlocksDoNotSeeEachOther) {
  std::vector<float> x(64, 1.0F);
  x[0] = 1e6F;
  round_trip_fp8(x);
  EXPECT_EQ(x[32], 1.0F);
  EXPECT_EQ(x[1], 0.0F);  // 1 is below half the smallest step of its block
}

TEST(Quantise, ZerosStayZerosOfTheirSign) {
  std::vector<float> x(32, 0.0F);
  x[1] = -0.0F;
  std::vector<uint8_t> codes(32);
  std::vector<uint8_t> scales(2);
  quantize_fp8(x, codes.data(), scales.data());
  EXPECT_EQ(scales[0], 127 - 22);  // ue8m0(1e-4 / 448)
  EXPECT_EQ(codes[0], 0x00);
  EXPECT_EQ(codes[1], 0x80);
  quantize_fp4_index(x, codes.data(), scales.data());
  EXPECT_EQ(scales[0], 1);  // 2^-126
  EXPECT_EQ(codes[0], 0x80);
  quantize_fp4_kv(x, codes.data(), scales.data());
  EXPECT_EQ(scales[0], 0x01);  // e4m3(2^-9)
  EXPECT_EQ(codes[0], 0x80);
}

TEST(Quantise, EmptyRowWritesNothing) {
  quantize_fp8({}, nullptr, nullptr);
  quantize_fp4_index({}, nullptr, nullptr);
  quantize_fp4_kv({}, nullptr, nullptr);
  round_trip_fp8({});
}

TEST(Quantise, LargestKvScaleSaturates) {
  std::vector<float> x(16, 1e6F);
  std::vector<uint8_t> codes(8);
  uint8_t scale = 0;
  quantize_fp4_kv(x, codes.data(), &scale);
  EXPECT_EQ(scale, 0x7E);
  dequantize_fp4_kv(codes.data(), &scale, x);
  EXPECT_EQ(x[0], 6 * 448.0F);
}

TEST(Quantise, IsIdempotentAndExactInBFloat16) {
  constexpr uint64_t kSeed = 7;
  SCOPED_TRACE(::testing::Message() << "seed " << kSeed);
  Random random(kSeed);
  for (const float scale : {1e-6F, 1e-3F, 1.0F, 1e3F}) {
    std::vector<float> once = random.normals(64 * 32, scale);
    round_trip_fp8(once);
    std::vector<float> twice = once;
    round_trip_fp8(twice);
    EXPECT_TRUE(bitwise_equal(twice, once));
    std::vector<float> rounded;
    for (const float v : once) rounded.push_back(round_to_bfloat16(v));
    EXPECT_TRUE(bitwise_equal(rounded, once));
  }
}

TEST(Quantise, ErrorIsWithinHalfAStep) {
  constexpr uint64_t kSeed = 8;
  SCOPED_TRACE(::testing::Message() << "seed " << kSeed);
  Random random(kSeed);
  const std::vector<float> x = random.normals(128 * 32);
  std::vector<float> y = x;
  round_trip_fp8(y);
  for (size_t i = 0; i < x.size(); ++i) {
    // Four significant bits, and subnormals of 2^-9 times a scale of at most 6 / 224.
    EXPECT_LE(std::fabs(y[i] - x[i]), std::max(std::fabs(x[i]) * 0x1p-4F, 0x1p-10F * 0x1p-5F));
  }
}

}  // namespace
}  // namespace deepinfer
