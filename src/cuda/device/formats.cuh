#pragma once

#include "cuda/device/math.cuh"
#include "tensor/formats.h"

/// The number formats on the device: the same bits as tensor/formats.h, which the tests compare
/// with. bf16 and e8m0 are used from there directly (they are constexpr).
namespace deepinfer::cuda {

/// NaN codes give a quiet NaN.
DEEPINFER_HD float decode_e4m3(uint8_t code) {
  const uint32_t magnitude = code & 0x7FU;
  const uint32_t sign = (code & 0x80U) << 24;
  if (magnitude == 0x7F) return from_bits(sign | 0x7FC00000);
  // Exponent and mantissa as the lowest exponents of fp32; the factor moves the bias from 127 to 7
  // and makes subnormals what they are.
  return from_bits(sign | (magnitude << 20)) * 0x1p120F;
}

/// Nearest even, saturating at ±448, subnormals kept; NaN becomes 0x7F (sign kept).
DEEPINFER_HD uint8_t encode_e4m3(float value) {
  const uint32_t bits = to_bits(value);
  const auto sign = static_cast<uint8_t>((bits >> 24) & 0x80);
  const uint32_t magnitude = bits & 0x7FFFFFFF;
  if (magnitude > 0x7F800000) return sign | 0x7F;
  if (magnitude >= 0x43E00000) return sign | 0x7E;  // 448 and above
  if (magnitude < 0x3C800000) {                     // below 2^-6: a multiple of 2^-9
    // Adding 1.5·2^14 (ulp 2^-9) rounds to nearest even there.
    const float rounded = (from_bits(magnitude) + 0x1.8p14F) - 0x1.8p14F;
    return sign | static_cast<uint8_t>(rounded * 0x1p9F);
  }
  const uint32_t rounded = magnitude + 0x7FFFF + ((magnitude >> 20) & 1);
  return sign | static_cast<uint8_t>((rounded >> 20) - (120U << 3));
}

/// `code`: four bits.
DEEPINFER_HD float decode_e2m1(uint32_t code) {
  return from_bits(((code & 8U) << 28) | ((code & 7U) << 22)) * 0x1p126F;
}

/// Nearest, ties to the even code, saturating at ±6, sign of zero kept.
DEEPINFER_HD uint32_t encode_e2m1(float value) {
  const uint32_t bits = to_bits(value);
  const float magnitude = from_bits(bits & 0x7FFFFFFF);
  // Each comparison is with the midpoint below a code; ties go to the even code.
  const int code = (magnitude > 0.25F) + (magnitude >= 0.75F) + (magnitude > 1.25F) +
                   (magnitude >= 1.75F) + (magnitude > 2.5F) + (magnitude >= 3.5F) +
                   (magnitude > 5.0F);
  return static_cast<uint32_t>(code) | ((bits >> 28) & 8U);
}

/// Bytes of `low` (0 to 3) and `high` (4 to 7) picked by the four low nibbles of `selector`, each
/// below 8.
DEEPINFER_HD uint32_t byte_perm(uint32_t low, uint32_t high, uint32_t selector) {
#ifdef __CUDA_ARCH__
  return __byte_perm(low, high, selector);
#else
  const uint64_t bytes = (uint64_t{high} << 32) | low;
  uint32_t result = 0;
  for (uint32_t i = 0; i < 4; ++i) {
    const uint32_t pick = (selector >> (4 * i)) & 7U;
    result |= static_cast<uint32_t>((bytes >> (8 * pick)) & 0xFF) << (8 * i);
  }
  return result;
#endif
}

/// Two pairs of bf16; the first value of a pair is in the low half.
struct Bf16x4 {
  uint32_t low;
  uint32_t high;
};

/// Four e2m1 codes (16 bits, first in the lowest nibble) as bf16. The magnitudes' bf16 bytes are
/// looked up by byte permutation: 0, .5, 1, 1.5, 2, 3, 4, 6 are 0000 3F00 3F80 3FC0 4000 4040 4080
/// 40C0.
DEEPINFER_HD Bf16x4 e2m1x4_to_bf16(uint32_t codes) {
  const uint32_t magnitudes = codes & 0x7777U;
  const uint32_t upper = byte_perm(0x3F3F3F00, 0x40404040, magnitudes);
  const uint32_t lower = byte_perm(0xC0800000, 0xC0804000, magnitudes);
  const uint32_t low_sign = ((codes & 0x0008U) << 12) | ((codes & 0x0080U) << 24);
  const uint32_t high_sign = ((codes & 0x0800U) << 4) | ((codes & 0x8000U) << 16);
  return {byte_perm(lower, upper, 0x5140) | low_sign, byte_perm(lower, upper, 0x7362) | high_sign};
}

/// Four e4m3 codes as bf16 times 2^-120: two products with powers of two remain to be done. NaN
/// codes read as ±480: they come from keys that were NaN already.
DEEPINFER_HD Bf16x4 e4m3x4_to_small_bf16(uint32_t codes) {
  const uint32_t low = byte_perm(codes, 0, 0x4140);
  const uint32_t high = byte_perm(codes, 0, 0x4342);
  return {((low & 0x007F007FU) << 4) | ((low & 0x00800080U) << 8),
          ((high & 0x007F007FU) << 4) | ((high & 0x00800080U) << 8)};
}

#ifdef __CUDACC__
/// Two products in bf16, each rounded once; subnormals are kept.
__device__ __forceinline__ uint32_t multiply_bf16x2(uint32_t a, uint32_t b) {
  uint32_t result;
  // a·b + (-0): the instruction that every family has.
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(0x80008000U));
  return result;
}
#endif

}  // namespace deepinfer::cuda
