#include "tensor/formats.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "tests/tensor/golden_checks.h"

namespace deepinfer {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

TEST(NumberFormats, MatchGoldens) {
  const testing::Golden golden(testing::data_path("ops.safetensors"));
  check_number_formats(golden);
  check_weight_formats(golden);
}

TEST(BFloat16, EveryFiniteCodeRoundTrips) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const BFloat16 code{static_cast<uint16_t>(bits)};
    if (std::isnan(to_float(code))) continue;
    EXPECT_EQ(to_bfloat16(to_float(code)).bits, bits);
  }
}

TEST(BFloat16, RoundsTiesToEvenAndKeepsNaN) {
  EXPECT_EQ(round_to_bfloat16(0x1.01p0F), 0x1.00p0F);  // a tie, down to even
  EXPECT_EQ(round_to_bfloat16(0x1.03p0F), 0x1.04p0F);  // a tie, up to even
  EXPECT_EQ(round_to_bfloat16(0x1.010002p0F), 0x1.02p0F);
  EXPECT_EQ(round_to_bfloat16(std::numeric_limits<float>::max()), kInfinity);
  EXPECT_EQ(to_bfloat16(-kInfinity).bits, 0xFF80);
  // A payload in the low bits only must not become an infinity.
  EXPECT_TRUE(std::isnan(round_to_bfloat16(std::bit_cast<float>(uint32_t{0x7F800001}))));
  EXPECT_EQ(to_bfloat16(std::bit_cast<float>(uint32_t{0xFF800001})).bits, 0xFFC0);
}

TEST(E4M3, EveryFiniteCodeRoundTrips) {
  for (unsigned code = 0; code < 256; ++code) {
    const float value = e4m3_to_float(static_cast<uint8_t>(code));
    if ((code & 0x7F) == 0x7F) {
      EXPECT_TRUE(std::isnan(value));
    } else {
      EXPECT_EQ(float_to_e4m3(value), code);
    }
  }
}

TEST(E4M3, DecodesByTheFormatsDefinition) {
  for (int code = 0; code < 0x7F; ++code) {
    const int exponent = code >> 3;
    const int mantissa = code & 7;
    const float value = exponent == 0
                            ? std::ldexp(static_cast<float>(mantissa), -9)
                            : std::ldexp(1.0F + static_cast<float>(mantissa) / 8, exponent - 7);
    EXPECT_EQ(e4m3_to_float(static_cast<uint8_t>(code)), value);
    EXPECT_EQ(e4m3_to_float(static_cast<uint8_t>(code | 0x80)), -value);
  }
}

TEST(E4M3, SaturatesAndMarksNaN) {
  EXPECT_EQ(float_to_e4m3(kInfinity), 0x7E);
  EXPECT_EQ(float_to_e4m3(-kInfinity), 0xFE);
  EXPECT_EQ(float_to_e4m3(1e9F), 0x7E);
  EXPECT_EQ(float_to_e4m3(kNaN), 0x7F);
  EXPECT_EQ(float_to_e4m3(-kNaN), 0xFF);
  EXPECT_EQ(float_to_e4m3(0x1p-10F), 0x00);  // a tie with zero, which is even
  EXPECT_EQ(float_to_e4m3(-0x1p-11F), 0x80);
  EXPECT_EQ(float_to_e4m3(0x1.000002p-10F), 0x01);
}

TEST(E2M1, EveryCodeRoundTrips) {
  for (uint8_t code = 0; code < 16; ++code) EXPECT_EQ(float_to_e2m1(kE2M1Values[code]), code);
}

TEST(E2M1, TiesGoToTheEvenCodeAndLargeValuesSaturate) {
  struct Tie {
    float x, at, above;
  };
  for (const Tie& tie : {Tie{.25F, 0, .5F}, Tie{.75F, 1, 1}, Tie{1.25F, 1, 1.5F}, Tie{1.75F, 2, 2},
                         Tie{2.5F, 2, 3}, Tie{3.5F, 4, 4}, Tie{5, 4, 6}}) {
    EXPECT_EQ(kE2M1Values[float_to_e2m1(tie.x)], tie.at);
    EXPECT_EQ(kE2M1Values[float_to_e2m1(-tie.x)], -tie.at);
    EXPECT_EQ(kE2M1Values[float_to_e2m1(std::nextafter(tie.x, kInfinity))], tie.above);
  }
  EXPECT_EQ(float_to_e2m1(kInfinity), 7);
  EXPECT_EQ(float_to_e2m1(-1e30F), 15);
}

TEST(E8M0, ReadsEveryCode) {
  for (int code = 0; code < 255; ++code) {
    EXPECT_EQ(e8m0_to_float(static_cast<uint8_t>(code)), std::ldexp(1.0F, code - 127)) << code;
  }
  EXPECT_TRUE(std::isnan(e8m0_to_float(0xFF)));
}

TEST(E8M0, CeilingKeepsPowersOfTwo) {
  for (int exponent = -126; exponent <= 127; ++exponent) {
    const float power = std::ldexp(1.0F, exponent);
    EXPECT_EQ(ceil_to_e8m0(power), exponent + 127);
    EXPECT_EQ(ceil_to_e8m0(std::nextafter(power, kInfinity)), exponent + 128);
  }
}

}  // namespace
}  // namespace deepinfer
