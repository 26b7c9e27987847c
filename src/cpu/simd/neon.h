#pragma once

#include <arm_neon.h>

#include <cstdint>

#include "tensor/formats.h"

/// F32x16 on NEON (aarch64): four registers. Included by kernels_neon.cc only. simd/README.md
/// describes the interface. The denormal mode of cpu/denormals.h (FPCR.FZ) flushes operands and
/// results; it decides before rounding whether a result is tiny, x86 after it, so the two may
/// differ where a result rounds up to 2^-126.
namespace deepinfer::cpu::neon {

/// Sixteen comparison results, all ones or all zeros.
struct Mask16 {
  uint32x4_t part[4];
};

struct Pair;

struct F32x16 {
  /// Sums that kernels for few rows keep, and the panel of those for many rows: as many as the
  /// registers hold beside the operands.
  static constexpr int kFewSums = 4;
  static constexpr int kPanelRows = 2;
  static constexpr int kPanelOutputs = 3;

  float32x4_t part[4];

  static F32x16 zero() { return set1(0.0F); }
  static F32x16 set1(float x) {
    const float32x4_t all = vdupq_n_f32(x);
    return {{all, all, all, all}};
  }
  static F32x16 load(const float* p) {
    return {{vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)}};
  }
  /// Lanes from n on are zero and not read.
  static F32x16 load_first(const float* p, int n) {
    float copy[16] = {};
    for (int l = 0; l < n && l < 16; ++l) copy[l] = p[l];
    return load(copy);
  }
  static F32x16 load(const BFloat16* p) {
    F32x16 r;
    for (int i = 0; i < 4; ++i) {
      const uint16x4_t bits = vld1_u16(reinterpret_cast<const uint16_t*>(p + 4 * i));
      r.part[i] = vreinterpretq_f32_u32(vshll_n_u16(bits, 16));
    }
    return r;
  }
  static F32x16 load_first(const BFloat16* p, int n) {
    BFloat16 copy[16] = {};
    for (int l = 0; l < n && l < 16; ++l) copy[l] = p[l];
    return load(copy);
  }
  void store(float* p) const {
    for (int i = 0; i < 4; ++i) vst1q_f32(p + 4 * i, part[i]);
  }
  void store_first(float* p, int n) const {
    float copy[16];
    store(copy);
    for (int l = 0; l < n && l < 16; ++l) p[l] = copy[l];
  }
  /// Nearest even; NaN becomes a quiet NaN: to_bfloat16 of tensor/formats.h.
  void store(BFloat16* p) const {
    for (int i = 0; i < 4; ++i) {
      const uint32x4_t bits = vreinterpretq_u32_f32(part[i]);
      const uint32x4_t high = vshrq_n_u32(bits, 16);
      const uint32x4_t odd = vandq_u32(high, vdupq_n_u32(1));
      const uint32x4_t rounded =
          vshrq_n_u32(vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7FFF))), 16);
      const uint32x4_t quiet = vorrq_u32(high, vdupq_n_u32(0x40));
      const uint32x4_t number = vceqq_f32(part[i], part[i]);
      vst1_u16(reinterpret_cast<uint16_t*>(p + 4 * i),
               vmovn_u32(vbslq_u32(number, rounded, quiet)));
    }
  }
  void store_first(BFloat16* p, int n) const {
    BFloat16 copy[16];
    store(copy);
    for (int l = 0; l < n && l < 16; ++l) p[l] = copy[l];
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
  int32x4_t part[4];

  static I32x16 set1(int32_t x) {
    const int32x4_t all = vdupq_n_s32(x);
    return {{all, all, all, all}};
  }
  static I32x16 load(const int32_t* p) {
    return {{vld1q_s32(p), vld1q_s32(p + 4), vld1q_s32(p + 8), vld1q_s32(p + 12)}};
  }
  /// Sixteen bytes, zero-extended.
  static I32x16 load(const uint8_t* p) {
    const uint8x16_t bytes = vld1q_u8(p);
    return widen(vmovl_u8(vget_low_u8(bytes)), vmovl_u8(vget_high_u8(bytes)));
  }
  /// Sixteen 16-bit words, zero-extended: lane l holds bytes 2l (low) and 2l + 1.
  static I32x16 load_words(const uint8_t* p) {
    return widen(vreinterpretq_u16_u8(vld1q_u8(p)), vreinterpretq_u16_u8(vld1q_u8(p + 16)));
  }
  void store(int32_t* p) const {
    for (int i = 0; i < 4; ++i) vst1q_s32(p + 4 * i, part[i]);
  }
  /// The low byte of every lane.
  void store_bytes(uint8_t* p) const {
    int32_t copy[16];
    store(copy);
    for (int l = 0; l < 16; ++l) p[l] = static_cast<uint8_t>(copy[l]);
  }

 private:
  static I32x16 widen(uint16x8_t low, uint16x8_t high) {
    return {{vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(low))),
             vreinterpretq_s32_u32(vmovl_u16(vget_high_u16(low))),
             vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(high))),
             vreinterpretq_s32_u32(vmovl_u16(vget_high_u16(high)))}};
  }
};

/// Calls f(part) for the four registers of the result.
template <typename Result, typename F>
Result per_part(F f) {
  return {{f(0), f(1), f(2), f(3)}};
}

inline F32x16 operator+(F32x16 a, F32x16 b) {
  return per_part<F32x16>([&](int i) { return vaddq_f32(a.part[i], b.part[i]); });
}
inline F32x16 operator-(F32x16 a, F32x16 b) {
  return per_part<F32x16>([&](int i) { return vsubq_f32(a.part[i], b.part[i]); });
}
inline F32x16 operator*(F32x16 a, F32x16 b) {
  return per_part<F32x16>([&](int i) { return vmulq_f32(a.part[i], b.part[i]); });
}
inline F32x16 operator/(F32x16 a, F32x16 b) {
  return per_part<F32x16>([&](int i) { return vdivq_f32(a.part[i], b.part[i]); });
}
inline F32x16 fma(F32x16 a, F32x16 b, F32x16 c) {
  return per_part<F32x16>([&](int i) { return vfmaq_f32(c.part[i], a.part[i], b.part[i]); });
}
/// b where a is not greater, NaN included, as x86 has it.
inline F32x16 max(F32x16 a, F32x16 b) {
  return per_part<F32x16>(
      [&](int i) { return vbslq_f32(vcgtq_f32(a.part[i], b.part[i]), a.part[i], b.part[i]); });
}
inline F32x16 min(F32x16 a, F32x16 b) {
  return per_part<F32x16>(
      [&](int i) { return vbslq_f32(vcltq_f32(a.part[i], b.part[i]), a.part[i], b.part[i]); });
}
inline F32x16 sqrt(F32x16 a) {
  return per_part<F32x16>([&](int i) { return vsqrtq_f32(a.part[i]); });
}
inline F32x16 round(F32x16 a) {
  return per_part<F32x16>([&](int i) { return vrndnq_f32(a.part[i]); });
}

inline I32x16 operator+(I32x16 a, I32x16 b) {
  return per_part<I32x16>([&](int i) { return vaddq_s32(a.part[i], b.part[i]); });
}
inline I32x16 operator-(I32x16 a, I32x16 b) {
  return per_part<I32x16>([&](int i) { return vsubq_s32(a.part[i], b.part[i]); });
}
inline I32x16 operator&(I32x16 a, I32x16 b) {
  return per_part<I32x16>([&](int i) { return vandq_s32(a.part[i], b.part[i]); });
}
inline I32x16 operator|(I32x16 a, I32x16 b) {
  return per_part<I32x16>([&](int i) { return vorrq_s32(a.part[i], b.part[i]); });
}
inline I32x16 operator^(I32x16 a, I32x16 b) {
  return per_part<I32x16>([&](int i) { return veorq_s32(a.part[i], b.part[i]); });
}
template <int kBits>
I32x16 shift_left(I32x16 a) {
  return per_part<I32x16>([&](int i) { return vshlq_n_s32(a.part[i], kBits); });
}
/// Zeros come in from the left.
template <int kBits>
I32x16 shift_right(I32x16 a) {
  return per_part<I32x16>([&](int i) {
    return vreinterpretq_s32_u32(vshrq_n_u32(vreinterpretq_u32_s32(a.part[i]), kBits));
  });
}
/// Copies of the sign come in from the left.
template <int kBits>
I32x16 shift_right_signed(I32x16 a) {
  return per_part<I32x16>([&](int i) { return vshrq_n_s32(a.part[i], kBits); });
}

inline I32x16 bits_of(F32x16 a) {
  return per_part<I32x16>([&](int i) { return vreinterpretq_s32_f32(a.part[i]); });
}
inline F32x16 from_bits(I32x16 a) {
  return per_part<F32x16>([&](int i) { return vreinterpretq_f32_s32(a.part[i]); });
}
/// Nearest even.
inline I32x16 to_int(F32x16 a) {
  return per_part<I32x16>([&](int i) { return vcvtnq_s32_f32(a.part[i]); });
}
inline F32x16 to_float(I32x16 a) {
  return per_part<F32x16>([&](int i) { return vcvtq_f32_s32(a.part[i]); });
}

inline Mask16 less(F32x16 a, F32x16 b) {
  return per_part<Mask16>([&](int i) { return vcltq_f32(a.part[i], b.part[i]); });
}
inline Mask16 equal(I32x16 a, I32x16 b) {
  return per_part<Mask16>([&](int i) { return vceqq_s32(a.part[i], b.part[i]); });
}
inline bool any(Mask16 mask) {
  const uint32x4_t low = vorrq_u32(mask.part[0], mask.part[1]);
  const uint32x4_t high = vorrq_u32(mask.part[2], mask.part[3]);
  return vmaxvq_u32(vorrq_u32(low, high)) != 0;
}
inline F32x16 select(Mask16 mask, F32x16 yes, F32x16 no) {
  return per_part<F32x16>([&](int i) { return vbslq_f32(mask.part[i], yes.part[i], no.part[i]); });
}
inline I32x16 select(Mask16 mask, I32x16 yes, I32x16 no) {
  return per_part<I32x16>([&](int i) { return vbslq_s32(mask.part[i], yes.part[i], no.part[i]); });
}

/// table[lane's low four bits]
inline F32x16 lookup(F32x16 table, I32x16 index) {
  const uint8x16x4_t bytes = {
      {vreinterpretq_u8_f32(table.part[0]), vreinterpretq_u8_f32(table.part[1]),
       vreinterpretq_u8_f32(table.part[2]), vreinterpretq_u8_f32(table.part[3])}};
  // Byte b of a lane is byte 4·index + b of the table.
  const int32x4_t offsets = vdupq_n_s32(0x03020100);
  return per_part<F32x16>([&](int i) {
    const int32x4_t first = vshlq_n_s32(vandq_s32(index.part[i], vdupq_n_s32(15)), 2);
    const int32x4_t places = vaddq_s32(vmulq_s32(first, vdupq_n_s32(0x01010101)), offsets);
    return vreinterpretq_f32_u8(vqtbl4q_u8(bytes, vreinterpretq_u8_s32(places)));
  });
}

/// What load_pair() reads.
struct Pair {
  F32x16 odd;
  F32x16 even;
};
inline Pair F32x16::load_pair(const BFloat16* p) {
  const I32x16 words = I32x16::load_words(reinterpret_cast<const uint8_t*>(p));
  const I32x16 more = I32x16::load_words(reinterpret_cast<const uint8_t*>(p + 16));
  // Sixteen words each: uzp picks the even and the odd ones of two registers.
  Pair r;
  for (int i = 0; i < 4; ++i) {
    const I32x16& from = i < 2 ? words : more;
    const int32x4_t a = from.part[2 * (i % 2)];
    const int32x4_t b = from.part[2 * (i % 2) + 1];
    r.even.part[i] = vreinterpretq_f32_s32(vshlq_n_s32(vuzp1q_s32(a, b), 16));
    r.odd.part[i] = vreinterpretq_f32_s32(vshlq_n_s32(vuzp2q_s32(a, b), 16));
  }
  return r;
}
inline Pair F32x16::load_pair(const float* p) {
  Pair r;
  for (int i = 0; i < 4; ++i) {
    const float32x4x2_t both = vld2q_f32(p + 8 * i);
    r.even.part[i] = both.val[0];
    r.odd.part[i] = both.val[1];
  }
  return r;
}
/// The inverse order: elements 0 to 15, then 16 to 31.
inline void store_pair(Pair a, float* p) {
  for (int i = 0; i < 4; ++i) {
    const float32x4x2_t both = {{a.even.part[i], a.odd.part[i]}};
    vst2q_f32(p + 8 * i, both);
  }
}
// Without half floats, whose conversion the flush mode would reach here: subnormal codes are
// mantissa · 2^-17, normal ones move to their place with the exponent's bias.
inline Pair F32x16::load_e4m3_pair(const uint8_t* p) {
  const I32x16 words = I32x16::load_words(p);
  const auto decode = [](I32x16 code) {
    const I32x16 magnitude = code & I32x16::set1(0x7F);
    const I32x16 sign = shift_left<24>(code & I32x16::set1(0x80));
    const F32x16 normal = from_bits(shift_left<20>(magnitude) + I32x16::set1(112 << 23));
    const F32x16 small = to_float(magnitude) * F32x16::set1(0x1p-17F);
    const Mask16 is_small = less(to_float(magnitude), F32x16::set1(8.0F));
    return from_bits(bits_of(select(is_small, small, normal)) | sign);
  };
  return {decode(shift_right<8>(words)), decode(words & I32x16::set1(0xFF))};
}
inline Pair F32x16::load_e2m1_pair(const uint8_t* p, F32x16 table) {
  const I32x16 bytes = I32x16::load(p);
  return {lookup(table, shift_right<4>(bytes)), lookup(table, bytes)};
}

/// The fixed tree: lanes l and l + 8, then + 4, + 2, + 1.
inline float reduce_add(F32x16 a) {
  const float32x4_t low = vaddq_f32(a.part[0], a.part[2]);
  const float32x4_t high = vaddq_f32(a.part[1], a.part[3]);
  const float32x4_t four = vaddq_f32(low, high);
  const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
  return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}
template <int kCount>
void reduce_add_all(const F32x16 (&a)[kCount], float (&out)[kCount]) {
  for (int i = 0; i < kCount; ++i) out[i] = reduce_add(a[i]);
}
inline float reduce_max(F32x16 a) {
  F32x16 rest = a;
  rest.part[0] = vbslq_f32(vcgtq_f32(a.part[0], a.part[2]), a.part[0], a.part[2]);
  rest.part[1] = vbslq_f32(vcgtq_f32(a.part[1], a.part[3]), a.part[1], a.part[3]);
  const float32x4_t four =
      vbslq_f32(vcgtq_f32(rest.part[0], rest.part[1]), rest.part[0], rest.part[1]);
  float result = vgetq_lane_f32(four, 0);
  result = result > vgetq_lane_f32(four, 1) ? result : vgetq_lane_f32(four, 1);
  result = result > vgetq_lane_f32(four, 2) ? result : vgetq_lane_f32(four, 2);
  return result > vgetq_lane_f32(four, 3) ? result : vgetq_lane_f32(four, 3);
}

}  // namespace deepinfer::cpu::neon
