#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "tensor/formats.h"

/// F32x16 on AVX2, FMA and F16C: two registers. Included by kernels_avx2.cc only. simd/README.md
/// describes the interface.
namespace deepinfer::cpu::avx2 {

/// Sixteen comparison results, all ones or all zeros.
struct Mask16 {
  __m256 lo, hi;
};

struct Pair;

struct F32x16 {
  /// Sums that kernels for few rows keep, and the panel of those for many rows: as many as the
  /// registers hold beside the operands.
  static constexpr int kFewSums = 4;
  static constexpr int kPanelRows = 2;
  static constexpr int kPanelOutputs = 3;

  __m256 lo, hi;

  static F32x16 zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  static F32x16 set1(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
  static F32x16 load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
  /// Lanes from n on are zero and not read.
  static F32x16 load_first(const float* p, int n) {
    return {_mm256_maskload_ps(p, first(n)),
            n > 8 ? _mm256_maskload_ps(p + 8, first(n - 8)) : _mm256_setzero_ps()};
  }
  static F32x16 load(const BFloat16* p) {
    return {widen(reinterpret_cast<const __m128i*>(p)),
            widen(reinterpret_cast<const __m128i*>(p + 8))};
  }
  static F32x16 load_first(const BFloat16* p, int n) {
    if (n >= 16) return load(p);
    BFloat16 copy[16] = {};
    std::memcpy(copy, p, static_cast<size_t>(n) * sizeof(BFloat16));
    return load(copy);
  }
  void store(float* p) const {
    _mm256_storeu_ps(p, lo);
    _mm256_storeu_ps(p + 8, hi);
  }
  void store_first(float* p, int n) const {
    _mm256_maskstore_ps(p, first(n), lo);
    if (n > 8) _mm256_maskstore_ps(p + 8, first(n - 8), hi);
  }
  /// Nearest even; NaN becomes a quiet NaN: to_bfloat16 of tensor/formats.h.
  void store(BFloat16* p) const {
    // packus works within 128-bit halves: the permutation restores the order.
    const __m256i packed = _mm256_packus_epi32(narrow(lo), narrow(hi));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                        _mm256_permute4x64_epi64(packed, _MM_SHUFFLE(3, 1, 2, 0)));
  }
  void store_first(BFloat16* p, int n) const {
    if (n >= 16) return store(p);
    BFloat16 copy[16];
    store(copy);
    std::memcpy(p, copy, static_cast<size_t>(n) * sizeof(BFloat16));
  }

  /// Elements 2l + 1 and 2l of 32 consecutive ones in lane l: how products read them.
  static Pair load_pair(const BFloat16* p);
  static Pair load_pair(const float* p);
  /// 32 e4m3 codes as value · 2^-8, subnormals kept.
  static Pair load_e4m3_pair(const uint8_t* p);
  /// 32 e2m1 codes (16 bytes) as table[code].
  static Pair load_e2m1_pair(const uint8_t* p, F32x16 table);

 private:
  static __m256i first(int n) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), lane);
  }
  static __m256 widen(const __m128i* p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(p)), 16));
  }
  static __m256i narrow(__m256 x) {
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i high = _mm256_srli_epi32(bits, 16);
    const __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_srli_epi32(
        _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF))), 16);
    const __m256i quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
    const __m256 nan = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
    return _mm256_blendv_epi8(rounded, quiet, _mm256_castps_si256(nan));
  }
};

struct I32x16 {
  __m256i lo, hi;

  static I32x16 set1(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
  static I32x16 load(const int32_t* p) {
    return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
            _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 8))};
  }
  /// Sixteen bytes, zero-extended.
  static I32x16 load(const uint8_t* p) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return {_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8))};
  }
  void store(int32_t* p) const {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), lo);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 8), hi);
  }
  /// The low byte of every lane.
  void store_bytes(uint8_t* p) const {
    const __m256i byte = _mm256_set1_epi32(0xFF);
    const __m256i words = _mm256_permute4x64_epi64(
        _mm256_packus_epi32(_mm256_and_si256(lo, byte), _mm256_and_si256(hi, byte)),
        _MM_SHUFFLE(3, 1, 2, 0));
    _mm_storeu_si128(
        reinterpret_cast<__m128i*>(p),
        _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
  }
};

inline F32x16 operator+(F32x16 a, F32x16 b) {
  return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}
inline F32x16 operator-(F32x16 a, F32x16 b) {
  return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
}
inline F32x16 operator*(F32x16 a, F32x16 b) {
  return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}
inline F32x16 operator/(F32x16 a, F32x16 b) {
  return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
}
inline F32x16 fma(F32x16 a, F32x16 b, F32x16 c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
inline F32x16 max(F32x16 a, F32x16 b) {
  return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)};
}
inline F32x16 min(F32x16 a, F32x16 b) {
  return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)};
}
inline F32x16 sqrt(F32x16 a) {
  return {_mm256_sqrt_ps(a.lo), _mm256_sqrt_ps(a.hi)};
}
inline F32x16 round(F32x16 a) {
  constexpr int kMode = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(a.lo, kMode), _mm256_round_ps(a.hi, kMode)};
}

inline I32x16 operator+(I32x16 a, I32x16 b) {
  return {_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)};
}
inline I32x16 operator-(I32x16 a, I32x16 b) {
  return {_mm256_sub_epi32(a.lo, b.lo), _mm256_sub_epi32(a.hi, b.hi)};
}
inline I32x16 operator&(I32x16 a, I32x16 b) {
  return {_mm256_and_si256(a.lo, b.lo), _mm256_and_si256(a.hi, b.hi)};
}
inline I32x16 operator|(I32x16 a, I32x16 b) {
  return {_mm256_or_si256(a.lo, b.lo), _mm256_or_si256(a.hi, b.hi)};
}
inline I32x16 operator^(I32x16 a, I32x16 b) {
  return {_mm256_xor_si256(a.lo, b.lo), _mm256_xor_si256(a.hi, b.hi)};
}
template <int kBits>
I32x16 shift_left(I32x16 a) {
  return {_mm256_slli_epi32(a.lo, kBits), _mm256_slli_epi32(a.hi, kBits)};
}
/// Zeros come in from the left.
template <int kBits>
I32x16 shift_right(I32x16 a) {
  return {_mm256_srli_epi32(a.lo, kBits), _mm256_srli_epi32(a.hi, kBits)};
}
/// Copies of the sign come in from the left.
template <int kBits>
I32x16 shift_right_signed(I32x16 a) {
  return {_mm256_srai_epi32(a.lo, kBits), _mm256_srai_epi32(a.hi, kBits)};
}

inline I32x16 bits_of(F32x16 a) {
  return {_mm256_castps_si256(a.lo), _mm256_castps_si256(a.hi)};
}
inline F32x16 from_bits(I32x16 a) {
  return {_mm256_castsi256_ps(a.lo), _mm256_castsi256_ps(a.hi)};
}
/// Nearest even.
inline I32x16 to_int(F32x16 a) {
  return {_mm256_cvtps_epi32(a.lo), _mm256_cvtps_epi32(a.hi)};
}
inline F32x16 to_float(I32x16 a) {
  return {_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)};
}

inline Mask16 less(F32x16 a, F32x16 b) {
  return {_mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ)};
}
inline Mask16 equal(I32x16 a, I32x16 b) {
  return {_mm256_castsi256_ps(_mm256_cmpeq_epi32(a.lo, b.lo)),
          _mm256_castsi256_ps(_mm256_cmpeq_epi32(a.hi, b.hi))};
}
inline bool any(Mask16 mask) {
  return _mm256_movemask_ps(_mm256_or_ps(mask.lo, mask.hi)) != 0;
}
inline F32x16 select(Mask16 mask, F32x16 yes, F32x16 no) {
  return {_mm256_blendv_ps(no.lo, yes.lo, mask.lo), _mm256_blendv_ps(no.hi, yes.hi, mask.hi)};
}
inline I32x16 select(Mask16 mask, I32x16 yes, I32x16 no) {
  return bits_of(select(mask, from_bits(yes), from_bits(no)));
}

/// table[lane's low four bits]
inline F32x16 lookup(F32x16 table, I32x16 index) {
  const auto half = [&](__m256i i) {
    const __m256 low = _mm256_permutevar8x32_ps(table.lo, i);
    const __m256 high = _mm256_permutevar8x32_ps(table.hi, i);
    return _mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32(i, 28)));
  };
  return {half(index.lo), half(index.hi)};
}

/// What load_pair() reads.
struct Pair {
  F32x16 odd;
  F32x16 even;
};
inline Pair F32x16::load_pair(const BFloat16* p) {
  const I32x16 words = {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
                        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 16))};
  return {from_bits(words & I32x16::set1(-65536)), from_bits(shift_left<16>(words))};
}
inline Pair F32x16::load_pair(const float* p) {
  // shuffle_ps works within 128-bit halves, so 64-bit pairs come out in the order 0 2 1 3.
  const auto pick = [](__m256 shuffled) {
    return _mm256_castpd_ps(
        _mm256_permute4x64_pd(_mm256_castps_pd(shuffled), _MM_SHUFFLE(3, 1, 2, 0)));
  };
  const F32x16 a = F32x16::load(p);
  const F32x16 b = F32x16::load(p + 16);
  return {{pick(_mm256_shuffle_ps(a.lo, a.hi, _MM_SHUFFLE(3, 1, 3, 1))),
           pick(_mm256_shuffle_ps(b.lo, b.hi, _MM_SHUFFLE(3, 1, 3, 1)))},
          {pick(_mm256_shuffle_ps(a.lo, a.hi, _MM_SHUFFLE(2, 0, 2, 0))),
           pick(_mm256_shuffle_ps(b.lo, b.hi, _MM_SHUFFLE(2, 0, 2, 0)))}};
}
/// The inverse order: elements 0 to 15, then 16 to 31.
inline void store_pair(Pair a, float* p) {
  const auto store = [](__m256 even, __m256 odd, float* to) {
    const __m256 low = _mm256_unpacklo_ps(even, odd);
    const __m256 high = _mm256_unpackhi_ps(even, odd);
    _mm256_storeu_ps(to, _mm256_permute2f128_ps(low, high, 0x20));
    _mm256_storeu_ps(to + 8, _mm256_permute2f128_ps(low, high, 0x31));
  };
  store(a.even.lo, a.odd.lo, p);
  store(a.even.hi, a.odd.hi, p + 16);
}
// An e4m3 number is a half float whose exponent
/// has one bit less and a bias that is smaller by eight; the conversion ignores the denormal flags.
inline Pair F32x16::load_e4m3_pair(const uint8_t* p) {
  const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  const __m256i kept = _mm256_set1_epi16(static_cast<int16_t>(0xBF80));
  const auto widen = [&](__m256i halves) {
    const __m256i bits = _mm256_and_si256(_mm256_srai_epi16(halves, 1), kept);
    return F32x16{_mm256_cvtph_ps(_mm256_castsi256_si128(bits)),
                  _mm256_cvtph_ps(_mm256_extracti128_si256(bits, 1))};
  };
  return {widen(words), widen(_mm256_slli_epi16(words, 8))};
}
inline Pair F32x16::load_e2m1_pair(const uint8_t* p, F32x16 table) {
  const I32x16 bytes = I32x16::load(p);
  return {lookup(table, shift_right<4>(bytes)), lookup(table, bytes)};
}

/// The fixed tree: lanes l and l + 8, then + 4, + 2, + 1.
inline float reduce_add(F32x16 a) {
  const __m256 eight = _mm256_add_ps(a.lo, a.hi);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
template <int kCount>
void reduce_add_all(const F32x16 (&a)[kCount], float (&out)[kCount]) {
  for (int i = 0; i < kCount; ++i) out[i] = reduce_add(a[i]);
}
inline float reduce_max(F32x16 a) {
  const __m256 eight = _mm256_max_ps(a.lo, a.hi);
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

/// Four channels of every lane: unsigned times signed bytes, added in pairs to 16-bit words.
inline I32x16 multiply_bytes(I32x16 a, I32x16 b) {
  return {_mm256_maddubs_epi16(a.lo, b.lo), _mm256_maddubs_epi16(a.hi, b.hi)};
}
inline I32x16 add_words(I32x16 a, I32x16 b) {
  return {_mm256_add_epi16(a.lo, b.lo), _mm256_add_epi16(a.hi, b.hi)};
}
inline I32x16 sum_words(I32x16 a) {
  const __m256i ones = _mm256_set1_epi16(1);
  return {_mm256_madd_epi16(a.lo, ones), _mm256_madd_epi16(a.hi, ones)};
}
/// table[byte] for bytes below 16; `table` holds its sixteen bytes twice or more.
inline I32x16 lookup_bytes(const uint8_t* table, I32x16 bytes) {
  const __m256i values = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(table));
  return {_mm256_shuffle_epi8(values, bytes.lo), _mm256_shuffle_epi8(values, bytes.hi)};
}

}  // namespace deepinfer::cpu::avx2
