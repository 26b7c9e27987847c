#include "tensor/formats.h"

#include <algorithm>
#include <cmath>

namespace deepinfer {
namespace {

constexpr float decode_e4m3(uint8_t code) {
  const uint32_t sign = uint32_t{code & 0x80U} << 24;
  const uint32_t exponent = (code >> 3) & 0xF;
  const uint32_t mantissa = code & 7;
  if ((code & 0x7F) == 0x7F) return std::bit_cast<float>(sign | 0x7FC00000);
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-9F;
    return sign != 0 ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | ((exponent + 120) << 23) | (mantissa << 20));
}

constexpr std::array<float, 256> kE4M3Values = [] {
  std::array<float, 256> values{};
  for (unsigned i = 0; i < 256; ++i) values[i] = decode_e4m3(static_cast<uint8_t>(i));
  return values;
}();

}  // namespace

float e4m3_to_float(uint8_t code) {
  return kE4M3Values[code];
}

uint8_t float_to_e4m3(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint8_t>((bits >> 24) & 0x80);
  const uint32_t magnitude_bits = bits & 0x7FFFFFFF;
  if (magnitude_bits > 0x7F800000) return sign | 0x7F;
  const float magnitude = std::min(std::bit_cast<float>(magnitude_bits), kE4M3Max);
  if (magnitude < 0x1p-6F) {
    // Subnormal: a multiple of 2^-9. Adding 1.5·2^14 (ulp 2^-9) rounds to nearest even there.
    const float rounded = (magnitude + 0x1.8p14F) - 0x1.8p14F;
    return sign | static_cast<uint8_t>(rounded * 0x1p9F);
  }
  // Normal: keep 3 mantissa bits, nearest even; a carry moves into the exponent as it should.
  const auto m = std::bit_cast<uint32_t>(magnitude);
  const uint32_t rounded = m + 0x7FFFF + ((m >> 20) & 1);
  return sign | static_cast<uint8_t>((rounded >> 20) - (120U << 3));
}

uint8_t float_to_e2m1(float value) {
  const float magnitude = std::fabs(value);
  // Each bound is the midpoint below the next code; ties go to the even code.
  uint8_t code = 0;
  if (magnitude > 5.0F) {
    code = 7;
  } else if (magnitude >= 3.5F) {
    code = 6;
  } else if (magnitude > 2.5F) {
    code = 5;
  } else if (magnitude >= 1.75F) {
    code = 4;
  } else if (magnitude > 1.25F) {
    code = 3;
  } else if (magnitude >= 0.75F) {
    code = 2;
  } else if (magnitude > 0.25F) {
    code = 1;
  }
  return std::signbit(value) ? code | 8 : code;
}

}  // namespace deepinfer
