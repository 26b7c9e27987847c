#pragma once

#include <cstdint>

#include "cuda/device/formats.cuh"

/// Weights from global memory straight into the registers of the matrix instruction's first
/// operand. A thread (row g = lane / 4 of the warp's 16, and row g + 8; q = lane mod 4) owns
/// columns [16q, 16q + 16) of every 64: consecutive in memory, so that it loads them at once. Of
/// these sixteen, numbers 8v + n and 8v + 4 + n (n < 4) are pair P = 4v + n, which the instruction
/// sees at step P / 2, half P mod 2; rows of the other operand are permuted alike
/// (gemm/permute.cuh).
namespace deepinfer::cuda {

/// Steps of 16 columns in a block of 64, and the registers of each.
using Fragments = uint32_t[4][4];

/// a·b for pairs of bf16. A fused add of -0 is a product on every architecture.
__device__ __forceinline__ uint32_t mul_bf16x2(uint32_t a, uint32_t b) {
  uint32_t d;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(0x80008000));
  return d;
}

/// 2^(code - 127) twice as bf16.
__device__ __forceinline__ uint32_t scale_bf16x2(uint32_t code) {
  return (code == 0 ? 0x40U : code << 7) * 0x00010001U;
}

/// Weights are read once: they need no place in L1. Without `take` nothing is read and `v` stays:
/// a predicate and not a branch, because branches would keep matrix instructions from overlapping.
__device__ __forceinline__ void load_stream(uint4& v, const uint8_t* from, bool take) {
  asm("{.reg .pred p; setp.ne.b32 p, %5, 0;\n"
      "@p ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];}"
      : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w)
      : "l"(from), "r"(static_cast<int>(take)));
}
__device__ __forceinline__ void load_stream(uint2& v, const uint8_t* from, bool take) {
  asm("{.reg .pred p; setp.ne.b32 p, %3, 0;\n"
      "@p ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];}"
      : "+r"(v.x), "+r"(v.y)
      : "l"(from), "r"(static_cast<int>(take)));
}
__device__ __forceinline__ void load_byte(uint32_t& v, const uint8_t* from, bool take) {
  asm("{.reg .pred p; setp.ne.b32 p, %2, 0;\n"
      "@p ld.global.nc.u8 %0, [%1];}"
      : "+r"(v)
      : "l"(from), "r"(static_cast<int>(take)));
}

/// Puts pair `kPair` of row g (kRow 0) or g + 8 (kRow 1) where the instruction reads it.
template <int kPair, int kRow>
__device__ __forceinline__ void place_pair(Fragments& a, uint32_t pair) {
  a[kPair / 2][(kPair % 2) * 2 + kRow] = pair;
}

/// Codes and scales of a weight at a block of 64 columns, the same for all threads.
struct BlockSource {
  const uint8_t* codes;
  const uint8_t* scales;  // nullptr for bf16
};
/// Where a thread's part of a row lies from there, in bytes.
struct RowOffset {
  uint32_t codes;
  uint32_t scales;
};

/// FP8 with one e8m0 scale per 32 columns.
struct Fp8Weight {
  static constexpr int kThreadBytes = 16;     // of a row's block
  static constexpr int kBlockBytes = 64;      // of a row
  static constexpr int kBlockScaleBytes = 2;  // of a row
  static constexpr bool kIsScaled = true;
  static constexpr int kLargeTiles = 2;  // tiles of 64 outputs per warpgroup with many rows

  uint4 codes = {0, 0, 0, 0};
  uint32_t scale = 0;

  /// Block number `block` from `source` on.
  __device__ __forceinline__ void load(const BlockSource& source, const RowOffset& row, int block,
                                       bool take) {
    load_stream(codes, source.codes + row.codes + block * kBlockBytes, take);
    load_byte(scale, source.scales + row.scales + block * kBlockScaleBytes, take);
  }
  template <int kRow>
  __device__ __forceinline__ void expand(Fragments& a) const {
    const uint32_t words[4] = {codes.x, codes.y, codes.z, codes.w};
    const uint32_t factor = scale_bf16x2(scale);
    expand_half<kRow, 0>(a, words[0], words[1], factor);
    expand_half<kRow, 4>(a, words[2], words[3], factor);
  }

 private:
  template <int kRow, int kFirst>
  static __device__ __forceinline__ void expand_half(Fragments& a, uint32_t low, uint32_t high,
                                                     uint32_t factor) {
    place_pair<kFirst, kRow>(a, pair_of<0>(low, high, factor));
    place_pair<kFirst + 1, kRow>(a, pair_of<1>(low, high, factor));
    place_pair<kFirst + 2, kRow>(a, pair_of<2>(low, high, factor));
    place_pair<kFirst + 3, kRow>(a, pair_of<3>(low, high, factor));
  }
  /// Byte n of both words as bf16. Exponent and mantissa move to bf16's lowest exponents; the
  /// factor 2^120 makes them the value (subnormals too), then comes the scale.
  template <int kByte>
  static __device__ __forceinline__ uint32_t pair_of(uint32_t low, uint32_t high, uint32_t factor) {
    constexpr uint32_t kSelect = (4 + kByte) << 12 | kByte << 8 | kByte << 4 | kByte;
    const uint32_t codes = byte_perm(low, high, kSelect);
    const uint32_t small = ((codes & 0x7F007F00U) >> 4) | (codes & 0x80008000U);
    return mul_bf16x2(mul_bf16x2(small, 0x7B807B80U), factor);
  }
};

/// FP4 with one e8m0 scale per 32 columns.
struct Fp4Weight {
  static constexpr int kThreadBytes = 8;
  static constexpr int kBlockBytes = 32;
  static constexpr int kBlockScaleBytes = 2;
  static constexpr bool kIsScaled = true;
  static constexpr int kLargeTiles = 2;

  uint2 codes = {0, 0};
  uint32_t scale = 0;

  __device__ __forceinline__ void load(const BlockSource& source, const RowOffset& row, int block,
                                       bool take) {
    load_stream(codes, source.codes + row.codes + block * kBlockBytes, take);
    load_byte(scale, source.scales + row.scales + block * kBlockScaleBytes, take);
  }
  template <int kRow>
  __device__ __forceinline__ void expand(Fragments& a) const {
    const uint32_t factor = scale_bf16x2(scale);
    expand_word<kRow, 0>(a, codes.x, factor);
    expand_word<kRow, 4>(a, codes.y, factor);
  }

 private:
  template <int kRow, int kFirst>
  static __device__ __forceinline__ void expand_word(Fragments& a, uint32_t word, uint32_t factor) {
    place_pair<kFirst, kRow>(a, pair_of<0>(word, factor));
    place_pair<kFirst + 1, kRow>(a, pair_of<1>(word, factor));
    place_pair<kFirst + 2, kRow>(a, pair_of<2>(word, factor));
    place_pair<kFirst + 3, kRow>(a, pair_of<3>(word, factor));
  }
  /// Nibbles n and n + 4: their magnitude bits as bf16's lowest exponents, times 2^126.
  template <int kNibble>
  static __device__ __forceinline__ uint32_t pair_of(uint32_t word, uint32_t factor) {
    const uint32_t codes = word >> (4 * kNibble);
    const uint32_t small = ((codes & 0x00070007U) << 6) | ((codes & 0x00080008U) << 12);
    return mul_bf16x2(mul_bf16x2(small, 0x7E807E80U), factor);
  }
};

struct Bf16Weight {
  static constexpr int kThreadBytes = 32;
  static constexpr int kBlockBytes = 128;
  static constexpr int kBlockScaleBytes = 0;
  static constexpr bool kIsScaled = false;
  static constexpr int kLargeTiles = 1;

  uint4 low = {0, 0, 0, 0};
  uint4 high = {0, 0, 0, 0};

  __device__ __forceinline__ void load(const BlockSource& source, const RowOffset& row, int block,
                                       bool take) {
    load_stream(low, source.codes + row.codes + block * kBlockBytes, take);
    load_stream(high, source.codes + row.codes + block * kBlockBytes + 16, take);
  }
  template <int kRow>
  __device__ __forceinline__ void expand(Fragments& a) const {
    expand_half<kRow, 0>(a, low);
    expand_half<kRow, 4>(a, high);
  }

 private:
  template <int kRow, int kFirst>
  static __device__ __forceinline__ void expand_half(Fragments& a, const uint4& v) {
    place_pair<kFirst, kRow>(a, byte_perm(v.x, v.z, 0x5410));
    place_pair<kFirst + 1, kRow>(a, byte_perm(v.x, v.z, 0x7632));
    place_pair<kFirst + 2, kRow>(a, byte_perm(v.y, v.w, 0x5410));
    place_pair<kFirst + 3, kRow>(a, byte_perm(v.y, v.w, 0x7632));
  }
};

}  // namespace deepinfer::cuda
