#pragma once

#include <array>
#include <bit>
#include <cstdint>

/// The number formats of the model, exact to the bit (spec/model.md §6, spec/checkpoint.md §2.2).
/// Every backend is tested against these.
namespace deepinfer {

/// bfloat16 as stored bits.
struct BFloat16 {
  uint16_t bits = 0;
};

constexpr float to_float(BFloat16 value) {
  return std::bit_cast<float>(uint32_t{value.bits} << 16);
}

/// Round to nearest, ties to even. NaN becomes a quiet NaN of the same sign.
constexpr BFloat16 to_bfloat16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFF) > 0x7F800000) return {static_cast<uint16_t>((bits >> 16) | 0x40)};
  return {static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16)};
}

/// The fp32 value nearest to `value` among the bf16 values.
constexpr float round_to_bfloat16(float value) {
  return to_float(to_bfloat16(value));
}

/// E4M3FN: bias 7, no infinity, 0x7F and 0xFF are NaN, largest value 448.
float e4m3_to_float(uint8_t code);
/// Nearest even, saturating at ±448, subnormals kept; NaN becomes 0x7F (sign kept).
uint8_t float_to_e4m3(float value);
inline constexpr float kE4M3Max = 448.0F;

/// E2M1: bit 3 is the sign, magnitudes 0, .5, 1, 1.5, 2, 3, 4, 6.
inline constexpr std::array<float, 16> kE2M1Values = {0.0F,  0.5F,  1.0F,  1.5F,  2.0F,  3.0F,
                                                      4.0F,  6.0F,  -0.0F, -0.5F, -1.0F, -1.5F,
                                                      -2.0F, -3.0F, -4.0F, -6.0F};
/// Nearest, ties to the even code, saturating at ±6, sign of zero kept. NaN is not representable
/// (caller's bug).
uint8_t float_to_e2m1(float value);
inline constexpr float kE2M1Max = 6.0F;

/// E8M0: 2^(byte - 127); 0xFF is NaN. Byte 0 gives the subnormal 2^-127.
constexpr float e8m0_to_float(uint8_t code) {
  if (code == 0xFF) return std::bit_cast<float>(uint32_t{0x7FC00000});
  if (code == 0) return std::bit_cast<float>(uint32_t{0x00400000});
  return std::bit_cast<float>(uint32_t{code} << 23);
}

/// ue8m0(s) of spec/model.md §6: the E8M0 byte of the smallest power of two >= s, for finite normal
/// s > 0.
constexpr uint8_t ceil_to_e8m0(float s) {
  const auto bits = std::bit_cast<uint32_t>(s);
  return static_cast<uint8_t>((bits >> 23) + ((bits & 0x7FFFFF) != 0 ? 1 : 0));
}

}  // namespace deepinfer
