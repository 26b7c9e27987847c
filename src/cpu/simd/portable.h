#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "tensor/formats.h"

/// F32x16 in standard C++: the level that every machine has. Included by kernels_portable.cc only.
/// Subnormal operands and results of sums and products count as zeros, as with the flags that the
/// other levels set (denormals.h). simd/README.md describes the interface.
namespace deepinfer::cpu::portable {

inline constexpr float kSmallestNormal = 0x1p-126F;

/// A subnormal as a zero of its sign.
inline float flush(float x) {
  return std::fabs(x) < kSmallestNormal ? std::copysign(0.0F, x) : x;
}

/// a·b + c rounded once, then flushed as x86 does: a result is tiny if it would be below the
/// smallest normal number after rounding with an unbounded exponent. Rounding as a subnormal can
/// reach that number from further below, so results up to it are computed again, scaled by 2^64:
/// then |c| < 2^-77 (or nothing would cancel so far) and the smaller factor < 2^-38.
inline float fused(float a, float b, float c) {
  a = flush(a);
  b = flush(b);
  c = flush(c);
  const float sum = std::fma(a, b, c);
  if (std::fabs(sum) > kSmallestNormal || sum == 0) return sum;
  const bool a_is_smaller = std::fabs(a) < std::fabs(b);
  const float scaled =
      std::fma(a_is_smaller ? a * 0x1p64F : a, a_is_smaller ? b : b * 0x1p64F, c * 0x1p64F);
  return std::fabs(scaled) < kSmallestNormal * 0x1p64F ? std::copysign(0.0F, sum) : sum;
}

/// Sixteen comparison results.
struct Mask16 {
  bool lane[16];
};

struct Pair;

struct F32x16 {
  /// Sums that kernels for few rows keep, and the panel of those for many rows: as many as the
  /// registers hold beside the operands.
  static constexpr int kFewSums = 2;
  static constexpr int kPanelRows = 2;
  static constexpr int kPanelOutputs = 2;

  float lane[16];

  static F32x16 zero() { return {}; }
  static F32x16 set1(float x) {
    F32x16 r;
    for (float& l : r.lane) l = x;
    return r;
  }
  static F32x16 load(const float* p) { return load_first(p, 16); }
  /// Lanes from n on are zero and not read.
  static F32x16 load_first(const float* p, int n) {
    F32x16 r = {};
    for (int64_t l = 0; l < n && l < 16; ++l) r.lane[l] = p[l];
    return r;
  }
  static F32x16 load(const BFloat16* p) { return load_first(p, 16); }
  static F32x16 load_first(const BFloat16* p, int n) {
    F32x16 r = {};
    for (int64_t l = 0; l < n && l < 16; ++l) r.lane[l] = to_float(p[l]);
    return r;
  }
  void store(float* p) const { store_first(p, 16); }
  void store_first(float* p, int n) const {
    for (int64_t l = 0; l < n && l < 16; ++l) p[l] = lane[l];
  }
  /// Nearest even; NaN becomes a quiet NaN: to_bfloat16 of tensor/formats.h.
  void store(BFloat16* p) const { store_first(p, 16); }
  void store_first(BFloat16* p, int n) const {
    for (int64_t l = 0; l < n && l < 16; ++l) p[l] = to_bfloat16(lane[l]);
  }

  /// Elements 2l + 1 and 2l of 32 consecutive ones in lane l: how products read them.
  static Pair load_pair(const BFloat16* p);
  static Pair load_pair(const float* p);
  /// 32 e4m3 codes as value · 2^-8, subnormals kept.
  static Pair load_e4m3_pair(const uint8_t* p);
  /// 32 e2m1 codes (16 bytes) as table[code].
  static Pair load_e2m1_pair(const uint8_t* p, F32x16 table);
};

struct I32x16 {
  int32_t lane[16];

  static I32x16 set1(int32_t x) {
    I32x16 r;
    for (int32_t& l : r.lane) l = x;
    return r;
  }
  static I32x16 load(const int32_t* p) {
    I32x16 r;
    for (int64_t l = 0; l < 16; ++l) r.lane[l] = p[l];
    return r;
  }
  /// Sixteen bytes, zero-extended.
  static I32x16 load(const uint8_t* p) {
    I32x16 r;
    for (int64_t l = 0; l < 16; ++l) r.lane[l] = p[l];
    return r;
  }
  void store(int32_t* p) const {
    for (int64_t l = 0; l < 16; ++l) p[l] = lane[l];
  }
  /// The low byte of every lane.
  void store_bytes(uint8_t* p) const {
    for (int64_t l = 0; l < 16; ++l) p[l] = static_cast<uint8_t>(lane[l]);
  }
};

/// Calls f(lane) for every lane of the result.
template <typename Result, typename F>
Result per_lane(F f) {
  Result r;
  for (int64_t l = 0; l < 16; ++l) r.lane[l] = f(l);
  return r;
}

inline F32x16 operator+(F32x16 a, F32x16 b) {
  return per_lane<F32x16>([&](int64_t l) { return flush(flush(a.lane[l]) + flush(b.lane[l])); });
}
inline F32x16 operator-(F32x16 a, F32x16 b) {
  return per_lane<F32x16>([&](int64_t l) { return flush(flush(a.lane[l]) - flush(b.lane[l])); });
}
inline F32x16 operator*(F32x16 a, F32x16 b) {
  // The sum with -0 changes nothing, not even the sign of a zero.
  return per_lane<F32x16>([&](int64_t l) { return fused(a.lane[l], b.lane[l], -0.0F); });
}
inline F32x16 operator/(F32x16 a, F32x16 b) {
  return per_lane<F32x16>([&](int64_t l) { return flush(flush(a.lane[l]) / flush(b.lane[l])); });
}
inline F32x16 fma(F32x16 a, F32x16 b, F32x16 c) {
  return per_lane<F32x16>([&](int64_t l) { return fused(a.lane[l], b.lane[l], c.lane[l]); });
}
inline F32x16 max(F32x16 a, F32x16 b) {
  return per_lane<F32x16>([&](int64_t l) { return a.lane[l] > b.lane[l] ? a.lane[l] : b.lane[l]; });
}
inline F32x16 min(F32x16 a, F32x16 b) {
  return per_lane<F32x16>([&](int64_t l) { return a.lane[l] < b.lane[l] ? a.lane[l] : b.lane[l]; });
}
inline F32x16 sqrt(F32x16 a) {
  return per_lane<F32x16>([&](int64_t l) { return std::sqrt(flush(a.lane[l])); });
}
inline F32x16 round(F32x16 a) {
  return per_lane<F32x16>([&](int64_t l) { return std::nearbyint(a.lane[l]); });
}

/// Arithmetic on lanes wraps, so it is done without signs.
template <typename F>
I32x16 wrapping(I32x16 a, I32x16 b, F f) {
  return per_lane<I32x16>([&](int64_t l) {
    return static_cast<int32_t>(
        f(static_cast<uint32_t>(a.lane[l]), static_cast<uint32_t>(b.lane[l])));
  });
}
inline I32x16 operator+(I32x16 a, I32x16 b) {
  return wrapping(a, b, [](uint32_t x, uint32_t y) { return x + y; });
}
inline I32x16 operator-(I32x16 a, I32x16 b) {
  return wrapping(a, b, [](uint32_t x, uint32_t y) { return x - y; });
}
inline I32x16 operator&(I32x16 a, I32x16 b) {
  return wrapping(a, b, [](uint32_t x, uint32_t y) { return x & y; });
}
inline I32x16 operator|(I32x16 a, I32x16 b) {
  return wrapping(a, b, [](uint32_t x, uint32_t y) { return x | y; });
}
inline I32x16 operator^(I32x16 a, I32x16 b) {
  return wrapping(a, b, [](uint32_t x, uint32_t y) { return x ^ y; });
}
template <int kBits>
I32x16 shift_left(I32x16 a) {
  return wrapping(a, a, [](uint32_t x, uint32_t) { return x << kBits; });
}
/// Zeros come in from the left.
template <int kBits>
I32x16 shift_right(I32x16 a) {
  return wrapping(a, a, [](uint32_t x, uint32_t) { return x >> kBits; });
}
/// Copies of the sign come in from the left.
template <int kBits>
I32x16 shift_right_signed(I32x16 a) {
  return per_lane<I32x16>([&](int64_t l) { return a.lane[l] >> kBits; });
}

inline I32x16 bits_of(F32x16 a) {
  return per_lane<I32x16>([&](int64_t l) { return std::bit_cast<int32_t>(a.lane[l]); });
}
inline F32x16 from_bits(I32x16 a) {
  return per_lane<F32x16>([&](int64_t l) { return std::bit_cast<float>(a.lane[l]); });
}
/// Nearest even. Outside int32_t, and for NaN, the smallest integer, as x86 has it.
inline I32x16 to_int(F32x16 a) {
  return per_lane<I32x16>([&](int64_t l) {
    const float x = std::nearbyint(a.lane[l]);
    return x >= -0x1p31F && x < 0x1p31F ? static_cast<int32_t>(x) : INT32_MIN;
  });
}
inline F32x16 to_float(I32x16 a) {
  return per_lane<F32x16>([&](int64_t l) { return static_cast<float>(a.lane[l]); });
}

inline Mask16 less(F32x16 a, F32x16 b) {
  return per_lane<Mask16>([&](int64_t l) { return flush(a.lane[l]) < flush(b.lane[l]); });
}
inline Mask16 equal(I32x16 a, I32x16 b) {
  return per_lane<Mask16>([&](int64_t l) { return a.lane[l] == b.lane[l]; });
}
inline bool any(Mask16 mask) {
  bool found = false;
  for (const bool lane : mask.lane) found = found || lane;
  return found;
}
inline F32x16 select(Mask16 mask, F32x16 yes, F32x16 no) {
  return per_lane<F32x16>([&](int64_t l) { return mask.lane[l] ? yes.lane[l] : no.lane[l]; });
}
inline I32x16 select(Mask16 mask, I32x16 yes, I32x16 no) {
  return per_lane<I32x16>([&](int64_t l) { return mask.lane[l] ? yes.lane[l] : no.lane[l]; });
}

/// table[lane's low four bits]
inline F32x16 lookup(F32x16 table, I32x16 index) {
  return per_lane<F32x16>([&](int64_t l) { return table.lane[index.lane[l] & 15]; });
}

/// What load_pair() reads.
struct Pair {
  F32x16 odd;
  F32x16 even;
};
inline Pair F32x16::load_pair(const BFloat16* p) {
  return {per_lane<F32x16>([&](int64_t l) { return to_float(p[2 * l + 1]); }),
          per_lane<F32x16>([&](int64_t l) { return to_float(p[2 * l]); })};
}
inline Pair F32x16::load_pair(const float* p) {
  return {per_lane<F32x16>([&](int64_t l) { return p[2 * l + 1]; }),
          per_lane<F32x16>([&](int64_t l) { return p[2 * l]; })};
}
/// The inverse order: elements 0 to 15, then 16 to 31.
inline void store_pair(Pair a, float* p) {
  for (int64_t l = 0; l < 16; ++l) {
    p[2 * l] = a.even.lane[l];
    p[2 * l + 1] = a.odd.lane[l];
  }
}
inline Pair F32x16::load_e4m3_pair(const uint8_t* p) {
  return {per_lane<F32x16>([&](int64_t l) { return e4m3_to_float(p[2 * l + 1]) * 0x1p-8F; }),
          per_lane<F32x16>([&](int64_t l) { return e4m3_to_float(p[2 * l]) * 0x1p-8F; })};
}
inline Pair F32x16::load_e2m1_pair(const uint8_t* p, F32x16 table) {
  const I32x16 bytes = I32x16::load(p);
  return {lookup(table, shift_right<4>(bytes)), lookup(table, bytes)};
}

/// The fixed tree: lanes l and l + 8, then + 4, + 2, + 1.
inline float reduce_add(F32x16 a) {
  for (int width = 8; width > 0; width /= 2) {
    for (int64_t l = 0; l < width; ++l) {
      a.lane[l] = flush(flush(a.lane[l]) + flush(a.lane[l + width]));
    }
  }
  return a.lane[0];
}
template <int kCount>
void reduce_add_all(const F32x16 (&a)[kCount], float (&out)[kCount]) {
  for (int i = 0; i < kCount; ++i) out[i] = reduce_add(a[i]);
}
inline float reduce_max(F32x16 a) {
  for (int width = 8; width > 0; width /= 2) {
    for (int64_t l = 0; l < width; ++l) {
      a.lane[l] = a.lane[l] > a.lane[l + width] ? a.lane[l] : a.lane[l + width];
    }
  }
  return a.lane[0];
}

}  // namespace deepinfer::cpu::portable
