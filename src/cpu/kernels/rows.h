#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "cpu/kernels/math.h"
#include "tensor/formats.h"

// Kernels on one row: norms, rotations, quantisation (spec/model.md §1, §3, §6). Everything depends
// on the vector type V, names of helpers too, so that no two levels share code.
namespace deepinfer::cpu {

/// Σ x², four accumulators of sixteen lanes that take turns, then a fixed tree. A function of the
/// values and n alone.
template <typename V, typename T>
float sum_squares(const T* x, int64_t n) {
  V sums[4] = {V::zero(), V::zero(), V::zero(), V::zero()};
  int64_t i = 0;
  for (; i + 64 <= n; i += 64) {
    for (int k = 0; k < 4; ++k) {
      const V v = V::load(x + i + 16 * k);
      sums[k] = fma(v, v, sums[k]);
    }
  }
  for (int k = 0; i < n; ++k, i += 16) {
    const V v = n - i >= 16 ? V::load(x + i) : V::load_first(x + i, static_cast<int>(n - i));
    sums[k] = fma(v, v, sums[k]);
  }
  return reduce_add((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

/// Calls body(i, load, store) for the vectors of a row of n, the last one perhaps a part.
/// `load(p)` and `store(v, p)` touch the elements that the row has.
template <typename V, typename Body>
void for_vectors(int64_t n, Body&& body) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    body(i, [](const auto* p) { return V::load(p); }, [](V v, auto* p) { v.store(p); });
  }
  if (i == n) return;
  const int rest = static_cast<int>(n - i);
  body(
      i, [rest](const auto* p) { return V::load_first(p, rest); },
      [rest](V v, auto* p) { v.store_first(p, rest); });
}

/// w ⊙ (x · (mean(x²) + ε)^-½) → bf16; x and out may be the same memory.
template <typename V, typename T, typename W>
void rms_norm_row(const T* x, const W* w, int64_t n, float eps, BFloat16* out) {
  const V factor = V::set1(1.0F / std::sqrt(sum_squares<V>(x, n) / static_cast<float>(n) + eps));
  for_vectors<V>(n, [&](int64_t i, auto load, auto store) {
    store(load(w + i) * (load(x + i) * factor), out + i);
  });
}

/// The bits of the nearest bf16, in the upper half; the lower half is 0. A NaN stays one.
template <typename V>
IntOf<V> bf16_bits(V x) {
  const IntOf<V> bits = bits_of(x);
  const IntOf<V> even = shift_right<16>(bits) & IntOf<V>::set1(1);
  const IntOf<V> rounded = bits + even + IntOf<V>::set1(0x7FFF);
  const IntOf<V> magnitude = bits & IntOf<V>::set1(0x7FFFFFFF);
  // All ones where x is NaN.
  const IntOf<V> nan = shift_right_signed<31>(IntOf<V>::set1(0x7F800000) - magnitude);
  const IntOf<V> quiet = (bits | IntOf<V>::set1(0x400000)) & nan;
  return ((rounded & (nan ^ IntOf<V>::set1(-1))) | quiet) & IntOf<V>::set1(-0x10000);
}

/// The nearest bf16 values, as fp32.
template <typename V>
V round_to_bf16(V x) {
  return from_bits(bf16_bits(x));
}

/// Stores 32 values, of which V::load_pair() reads neighbours, as bf16.
template <typename V>
void store_pair(PairOf<V> a, BFloat16* p) {
  (shift_right<16>(bf16_bits(a.even)) | bf16_bits(a.odd)).store(reinterpret_cast<int32_t*>(p));
}

/// Rotates 2·pairs bf16 channels in place: (a, b) → (a·cos - b·sin, a·sin + b·cos), rounded to
/// bf16. `cosine` and `sine` [pairs rounded up to 16]; see rotation().
template <typename V>
void rotate_pairs(BFloat16* x, const float* cosine, const float* sine, int64_t pairs) {
  const auto turn = [](const BFloat16* p, V c, V s) {
    const auto v = V::load_pair(p);
    return PairOf<V>{.odd = fma(v.even, s, v.odd * c),
                     .even = fma(v.even, c, V::zero() - v.odd * s)};
  };
  int64_t i = 0;
  for (; i + 16 <= pairs; i += 16) {
    store_pair<V>(turn(x + 2 * i, V::load(cosine + i), V::load(sine + i)), x + 2 * i);
  }
  if (i == pairs) return;
  BFloat16 rest[32] = {};
  for (int64_t k = 0; k < 2 * (pairs - i); ++k) rest[k] = x[2 * i + k];
  store_pair<V>(turn(rest, V::load(cosine + i), V::load(sine + i)), rest);
  for (int64_t k = 0; k < 2 * (pairs - i); ++k) x[2 * i + k] = rest[k];
}

template <typename V>
V magnitude(V x) {
  return from_bits(bits_of(x) & IntOf<V>::set1(0x7FFFFFFF));
}

/// e4m3 codes of values of at most ±448 (NaN: 0x7F with its sign): float_to_e4m3.
template <typename V>
IntOf<V> to_e4m3(V x) {
  const IntOf<V> bits = bits_of(x);
  const IntOf<V> sign = shift_right<24>(bits) & IntOf<V>::set1(0x80);
  const V m = magnitude(x);
  // Subnormal codes are multiples of 2^-9: adding 1.5·2^14, whose ulp that is, rounds to them.
  const V anchor = V::set1(0x1.8p14F);
  const IntOf<V> small = bits_of(m + anchor) - bits_of(anchor);
  // Normal ones keep three mantissa bits; a carry moves into the exponent as it should.
  const IntOf<V> m_bits = bits_of(m);
  const IntOf<V> even = shift_right<20>(m_bits) & IntOf<V>::set1(1);
  const IntOf<V> normal =
      shift_right<20>(m_bits + even + IntOf<V>::set1(0x7FFFF)) - IntOf<V>::set1(120 << 3);
  const IntOf<V> finite = select(less(m, V::set1(0x1p-6F)), small, normal);
  const IntOf<V> nan = shift_right_signed<31>(IntOf<V>::set1(0x7F800000) - m_bits);
  return sign | ((finite | nan) & IntOf<V>::set1(0x7F));
}

/// 2^(127 - code), exact; 0 for the codes 254 and 255, which only infinite values have.
template <typename V>
float inverse_power_of_code(uint8_t code) {
  return std::bit_cast<float>(code >= 254 ? 0U : (254U - code) << 23);
}

/// FP8 rule of §6 on n (a multiple of 32) values: codes [n], UE8M0 scales [n/32].
template <typename V>
void quantize_fp8_row(const BFloat16* x, int64_t n, uint8_t* codes, uint8_t* scales) {
  const V limit = V::set1(kE4M3Max);
  for (int64_t b = 0; b < n; b += 32) {
    const V low = V::load(x + b);
    const V high = V::load(x + b + 16);
    // Operand order: a NaN does not count.
    const V largest = max(magnitude(low), max(magnitude(high), V::set1(1e-4F)));
    const uint8_t scale = ceil_to_e8m0(reduce_max(largest) * (1.0F / 448.0F));
    scales[b / 32] = scale;
    // Dividing by a power of two and multiplying by its inverse are the same.
    const V inverse = V::set1(inverse_power_of_code<V>(scale));
    const auto code = [&](V v) { return to_e4m3(max(V::zero() - limit, min(limit, v * inverse))); };
    code(low).store_bytes(codes + b);
    code(high).store_bytes(codes + b + 16);
  }
}

/// e2m1 codes: float_to_e2m1 (saturating, sign of zero kept).
template <typename V>
IntOf<V> to_e2m1(V x) {
  const V m = magnitude(x);
  const IntOf<V> one = IntOf<V>::set1(1);
  const IntOf<V> none = IntOf<V>::set1(0);
  // Each bound is the midpoint below the next code; ties go to the even code.
  const auto above = [&](float bound) { return select(less(V::set1(bound), m), one, none); };
  const auto from = [&](float bound) { return select(less(m, V::set1(bound)), none, one); };
  const IntOf<V> code = above(0.25F) + from(0.75F) + above(1.25F) + from(1.75F) + above(2.5F) +
                        from(3.5F) + above(5.0F);
  return code | (shift_right<28>(bits_of(x)) & IntOf<V>::set1(8));
}

/// Sixteen pairs as bytes, the even value in the low nibble.
template <typename V>
void store_e2m1(V even, V odd, uint8_t* codes) {
  (to_e2m1(even) | shift_left<4>(to_e2m1(odd))).store_bytes(codes);
}

/// FP4 rule of index queries and keys: n (a multiple of 32) values, codes [n/2], scales [n/32].
template <typename V>
void quantize_fp4_index_row(const BFloat16* x, int64_t n, uint8_t* codes, uint8_t* scales) {
  for (int64_t b = 0; b < n; b += 32) {
    const auto v = V::load_pair(x + b);
    const V largest = max(magnitude(v.even), max(magnitude(v.odd), V::set1(6 * 0x1p-126F)));
    const uint8_t scale = ceil_to_e8m0(reduce_max(largest) * (1.0F / 6.0F));
    scales[b / 32] = scale;
    const V inverse = V::set1(inverse_power_of_code<V>(scale));
    store_e2m1(v.even * inverse, v.odd * inverse, codes + b / 2);
  }
}

/// FP4 rule of compressed KV: n (a multiple of 16) values, codes [n/2], e4m3 scales [n/16].
template <typename V>
void quantize_fp4_kv_row(const BFloat16* x, int64_t n, uint8_t* codes, uint8_t* scales) {
  for (int64_t b = 0; b < n; b += 32) {
    // Lanes 0 to 7 hold the first block of 16 channels, lanes 8 to 15 the second, which the last
    // vector may lack.
    const bool is_half = n - b < 32;
    BFloat16 padded[32] = {};
    if (is_half) std::memcpy(padded, x + b, 16 * sizeof(BFloat16));
    const auto v = V::load_pair(is_half ? padded : x + b);
    float largest[16];
    max(magnitude(v.even), max(magnitude(v.odd), V::set1(6 * 0x1p-9F))).store(largest);
    float divisors[16];
    for (int block = 0; block < 2; ++block) {
      float amax = 0;
      for (int l = 8 * block; l < 8 * block + 8; ++l) amax = largest[l] > amax ? largest[l] : amax;
      const uint8_t scale = float_to_e4m3(amax / 6.0F);
      if (block == 0 || !is_half) scales[b / 16 + block] = scale;
      // The rounded scale and a true division: its inverse would break ties.
      for (int l = 8 * block; l < 8 * block + 8; ++l) divisors[l] = e4m3_to_float(scale);
    }
    const V divisor = V::load(divisors);
    uint8_t bytes[16];
    store_e2m1(v.even / divisor, v.odd / divisor, bytes);
    std::memcpy(codes + b / 2, bytes, is_half ? 8 : 16);
  }
}

}  // namespace deepinfer::cpu
