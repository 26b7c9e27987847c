#pragma once

#include <immintrin.h>

#include <cstdint>

#include "tensor/formats.h"

/// F32x16 on AVX-512: one register. Included by the translation units of the AVX-512 levels only,
/// each of which names its own namespace: the same inline function compiled with other flags must
/// not meet it at link time. simd/README.md describes the interface.
#ifndef DEEPINFER_AVX512_LEVEL
#error "define DEEPINFER_AVX512_LEVEL before including cpu/simd/avx512.h"
#endif

namespace deepinfer::cpu::DEEPINFER_AVX512_LEVEL {

/// Sixteen comparison results.
struct Mask16 {
  __mmask16 bits;
};

struct Pair;

struct F32x16 {
  /// Sums that kernels for few rows keep, and the panel of those for many rows: as many as the
  /// registers hold beside the operands.
  static constexpr int kFewSums = 16;
  static constexpr int kPanelRows = 6;
  static constexpr int kPanelOutputs = 4;

  __m512 v;

  static F32x16 zero() { return {_mm512_setzero_ps()}; }
  static F32x16 set1(float x) { return {_mm512_set1_ps(x)}; }
  static F32x16 load(const float* p) { return {_mm512_loadu_ps(p)}; }
  /// Lanes from n on are zero and not read.
  static F32x16 load_first(const float* p, int n) { return {_mm512_maskz_loadu_ps(first(n), p)}; }
  static F32x16 load(const BFloat16* p) {
    return widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static F32x16 load_first(const BFloat16* p, int n) {
    return widen(_mm256_maskz_loadu_epi16(first(n), p));
  }
  void store(float* p) const { _mm512_storeu_ps(p, v); }
  void store_first(float* p, int n) const { _mm512_mask_storeu_ps(p, first(n), v); }
  /// Nearest even; NaN becomes a quiet NaN: to_bfloat16 of tensor/formats.h.
  void store(BFloat16* p) const { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow()); }
  void store_first(BFloat16* p, int n) const { _mm256_mask_storeu_epi16(p, first(n), narrow()); }

  /// Elements 2l + 1 and 2l of 32 consecutive ones in lane l: how products read them.
  static Pair load_pair(const BFloat16* p);
  static Pair load_pair(const float* p);
  /// 32 e4m3 codes as value · 2^-8, subnormals kept.
  static Pair load_e4m3_pair(const uint8_t* p);
  /// 64 codes as two such pairs: the shifts and masks serve both.
  static void load_e4m3_pairs(const uint8_t* p, Pair (&pairs)[2]);
  /// 32 e2m1 codes (16 bytes) as table[code].
  static Pair load_e2m1_pair(const uint8_t* p, F32x16 table);

 private:
  static __mmask16 first(int n) { return static_cast<__mmask16>(n >= 16 ? 0xFFFF : (1 << n) - 1); }
  static F32x16 widen(__m256i bits) {
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16))};
  }
  __m256i narrow() const {
    const __m512i bits = _mm512_castps_si512(v);
    const __m512i high = _mm512_srli_epi32(bits, 16);
    const __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_srli_epi32(
        _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF))), 16);
    const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    return _mm512_cvtepi32_epi16(_mm512_mask_or_epi32(rounded, nan, high, _mm512_set1_epi32(0x40)));
  }
};

struct I32x16 {
  __m512i v;

  static I32x16 set1(int32_t x) { return {_mm512_set1_epi32(x)}; }
  static I32x16 load(const int32_t* p) { return {_mm512_loadu_si512(p)}; }
  /// Sixteen bytes, zero-extended.
  static I32x16 load(const uint8_t* p) {
    return {_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
  }
  void store(int32_t* p) const { _mm512_storeu_si512(p, v); }
  /// The low byte of every lane.
  void store_bytes(uint8_t* p) const {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(v));
  }
};

inline F32x16 operator+(F32x16 a, F32x16 b) {
  return {_mm512_add_ps(a.v, b.v)};
}
inline F32x16 operator-(F32x16 a, F32x16 b) {
  return {_mm512_sub_ps(a.v, b.v)};
}
inline F32x16 operator*(F32x16 a, F32x16 b) {
  return {_mm512_mul_ps(a.v, b.v)};
}
inline F32x16 operator/(F32x16 a, F32x16 b) {
  return {_mm512_div_ps(a.v, b.v)};
}
inline F32x16 fma(F32x16 a, F32x16 b, F32x16 c) {
  return {_mm512_fmadd_ps(a.v, b.v, c.v)};
}
inline F32x16 max(F32x16 a, F32x16 b) {
  return {_mm512_max_ps(a.v, b.v)};
}
inline F32x16 min(F32x16 a, F32x16 b) {
  return {_mm512_min_ps(a.v, b.v)};
}
inline F32x16 sqrt(F32x16 a) {
  return {_mm512_sqrt_ps(a.v)};
}
inline F32x16 round(F32x16 a) {
  return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}

inline I32x16 operator+(I32x16 a, I32x16 b) {
  return {_mm512_add_epi32(a.v, b.v)};
}
inline I32x16 operator-(I32x16 a, I32x16 b) {
  return {_mm512_sub_epi32(a.v, b.v)};
}
inline I32x16 operator&(I32x16 a, I32x16 b) {
  return {_mm512_and_si512(a.v, b.v)};
}
inline I32x16 operator|(I32x16 a, I32x16 b) {
  return {_mm512_or_si512(a.v, b.v)};
}
inline I32x16 operator^(I32x16 a, I32x16 b) {
  return {_mm512_xor_si512(a.v, b.v)};
}
template <int kBits>
I32x16 shift_left(I32x16 a) {
  return {_mm512_slli_epi32(a.v, kBits)};
}
/// Zeros come in from the left.
template <int kBits>
I32x16 shift_right(I32x16 a) {
  return {_mm512_srli_epi32(a.v, kBits)};
}
/// Copies of the sign come in from the left.
template <int kBits>
I32x16 shift_right_signed(I32x16 a) {
  return {_mm512_srai_epi32(a.v, kBits)};
}

inline I32x16 bits_of(F32x16 a) {
  return {_mm512_castps_si512(a.v)};
}
inline F32x16 from_bits(I32x16 a) {
  return {_mm512_castsi512_ps(a.v)};
}
/// Nearest even.
inline I32x16 to_int(F32x16 a) {
  return {_mm512_cvtps_epi32(a.v)};
}
inline F32x16 to_float(I32x16 a) {
  return {_mm512_cvtepi32_ps(a.v)};
}

inline Mask16 less(F32x16 a, F32x16 b) {
  return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ)};
}
inline Mask16 equal(I32x16 a, I32x16 b) {
  return {_mm512_cmpeq_epi32_mask(a.v, b.v)};
}
inline bool any(Mask16 mask) {
  return mask.bits != 0;
}
inline F32x16 select(Mask16 mask, F32x16 yes, F32x16 no) {
  return {_mm512_mask_blend_ps(mask.bits, no.v, yes.v)};
}
inline I32x16 select(Mask16 mask, I32x16 yes, I32x16 no) {
  return {_mm512_mask_blend_epi32(mask.bits, no.v, yes.v)};
}

/// table[lane's low four bits]
inline F32x16 lookup(F32x16 table, I32x16 index) {
  return {_mm512_permutexvar_ps(index.v, table.v)};
}
/// What load_pair() reads.
struct Pair {
  F32x16 odd;
  F32x16 even;
};
inline Pair F32x16::load_pair(const BFloat16* p) {
  const __m512i words = _mm512_loadu_si512(p);
  return {{_mm512_castsi512_ps(_mm512_and_si512(words, _mm512_set1_epi32(-65536)))},
          {_mm512_castsi512_ps(_mm512_slli_epi32(words, 16))}};
}
inline Pair F32x16::load_pair(const float* p) {
  const __m512 low = _mm512_loadu_ps(p);
  const __m512 high = _mm512_loadu_ps(p + 16);
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
  return {{_mm512_permutex2var_ps(low, odd, high)}, {_mm512_permutex2var_ps(low, even, high)}};
}
/// The inverse order: elements 0 to 15, then 16 to 31.
inline void store_pair(Pair a, float* p) {
  const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
  _mm512_storeu_ps(p, _mm512_permutex2var_ps(a.even.v, low, a.odd.v));
  _mm512_storeu_ps(p + 16, _mm512_permutex2var_ps(a.even.v, high, a.odd.v));
}
// An e4m3 number is a half float whose exponent
/// has one bit less and a bias that is smaller by eight; the conversion ignores the denormal flags.
inline Pair F32x16::load_e4m3_pair(const uint8_t* p) {
  const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  const __m256i kept = _mm256_set1_epi16(static_cast<int16_t>(0xBF80));
  const __m256i odd = _mm256_and_si256(_mm256_srai_epi16(words, 1), kept);
  const __m256i even = _mm256_and_si256(_mm256_srai_epi16(_mm256_slli_epi16(words, 8), 1), kept);
  return {{_mm512_cvtph_ps(odd)}, {_mm512_cvtph_ps(even)}};
}
inline void F32x16::load_e4m3_pairs(const uint8_t* p, Pair (&pairs)[2]) {
  const __m512i words = _mm512_loadu_si512(p);
  const __m512i kept = _mm512_set1_epi16(static_cast<int16_t>(0xBF80));
  const __m512i odd = _mm512_and_si512(_mm512_srai_epi16(words, 1), kept);
  const __m512i even = _mm512_and_si512(_mm512_srai_epi16(_mm512_slli_epi16(words, 8), 1), kept);
  pairs[0] = {{_mm512_cvtph_ps(_mm512_castsi512_si256(odd))},
              {_mm512_cvtph_ps(_mm512_castsi512_si256(even))}};
  pairs[1] = {{_mm512_cvtph_ps(_mm512_extracti64x4_epi64(odd, 1))},
              {_mm512_cvtph_ps(_mm512_extracti64x4_epi64(even, 1))}};
}
inline Pair F32x16::load_e2m1_pair(const uint8_t* p, F32x16 table) {
  const I32x16 bytes = I32x16::load(p);
  return {lookup(table, shift_right<4>(bytes)), lookup(table, bytes)};
}

/// The fixed tree: lanes l and l + 8, then + 4, + 2, + 1.
inline float reduce_add(F32x16 a) {
  const __m256 low = _mm512_castps512_ps256(a.v);
  const __m256 high = _mm512_extractf32x8_ps(a.v, 1);
  const __m256 eight = _mm256_add_ps(low, high);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
template <int kCount>
void reduce_add_all(const F32x16 (&a)[kCount], float (&out)[kCount]) {
  for (int i = 0; i < kCount; ++i) out[i] = reduce_add(a[i]);
}
/// reduce_add of four vectors at once: the same sums, with shuffles that serve two vectors each.
inline void reduce_add_all(const F32x16 (&a)[4], float (&out)[4]) {
  const auto halves = [](__m512 x, __m512 y) {  // lanes l + (l + 8) of x, then of y
    return _mm512_add_ps(_mm512_shuffle_f32x4(x, y, _MM_SHUFFLE(1, 0, 1, 0)),
                         _mm512_shuffle_f32x4(x, y, _MM_SHUFFLE(3, 2, 3, 2)));
  };
  const __m512 x = halves(a[0].v, a[1].v);
  const __m512 y = halves(a[2].v, a[3].v);
  // Lanes l + (l + 4): the 128-bit parts are vectors 0 to 3.
  const __m512 four = _mm512_add_ps(_mm512_shuffle_f32x4(x, y, _MM_SHUFFLE(2, 0, 2, 0)),
                                    _mm512_shuffle_f32x4(x, y, _MM_SHUFFLE(3, 1, 3, 1)));
  const __m512 two = _mm512_add_ps(four, _mm512_permute_ps(four, _MM_SHUFFLE(1, 0, 3, 2)));
  const __m512 one = _mm512_add_ps(two, _mm512_permute_ps(two, _MM_SHUFFLE(2, 3, 0, 1)));
  const __m512i pick = _mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
  _mm_storeu_ps(out, _mm512_castps512_ps128(_mm512_permutexvar_ps(pick, one)));
}
inline float reduce_max(F32x16 a) {
  return _mm512_reduce_max_ps(a.v);
}

/// reduce_add of sixteen vectors at once: lane 4b + g is that of sums[4g + b].
inline F32x16 reduce_add_each(const F32x16* sums) {
  __m512 eight[8];  // in halves of 256 bits
  for (int i = 0; i < 8; ++i) {
    const __m512 a = sums[2 * i].v;
    const __m512 b = sums[2 * i + 1].v;
    eight[i] = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xEE));
  }
  __m512 four[4];  // in quarters of 128 bits
  for (int i = 0; i < 4; ++i) {
    const __m512 a = eight[2 * i];
    const __m512 b = eight[2 * i + 1];
    four[i] = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xDD));
  }
  __m512 two[2];
  for (int i = 0; i < 2; ++i) {
    const __m512d a = _mm512_castps_pd(four[2 * i]);
    const __m512d b = _mm512_castps_pd(four[2 * i + 1]);
    two[i] = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)),
                           _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
  }
  return {_mm512_add_ps(_mm512_shuffle_ps(two[0], two[1], 0x88),
                        _mm512_shuffle_ps(two[0], two[1], 0xDD))};
}

/// Four channels of every lane: unsigned times signed bytes, added in pairs to 16-bit words.
inline I32x16 multiply_bytes(I32x16 a, I32x16 b) {
  return {_mm512_maddubs_epi16(a.v, b.v)};
}
inline I32x16 add_words(I32x16 a, I32x16 b) {
  return {_mm512_add_epi16(a.v, b.v)};
}
inline I32x16 sum_words(I32x16 a) {
  return {_mm512_madd_epi16(a.v, _mm512_set1_epi16(1))};
}
/// table[byte] for bytes below 16; `table` holds its sixteen bytes four times.
inline I32x16 lookup_bytes(const uint8_t* table, I32x16 bytes) {
  return {_mm512_shuffle_epi8(_mm512_loadu_si512(table), bytes.v)};
}

}  // namespace deepinfer::cpu::DEEPINFER_AVX512_LEVEL
