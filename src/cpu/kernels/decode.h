#pragma once

#include "cpu/kernels/math.h"
#include "cpu/products.h"

/// Stored weights to fp32 lanes, a step at a time. Everything is a template over the level's vector
/// type V, so that no two levels share a function.
namespace deepinfer::cpu {

/// The largest e8m0 code whose factor 2^(code - 127 + 8) is finite. FP8 scales above it make every
/// weight of 256 or more infinite; they take the slow way. load_e4m3's values are scaled by 2^-8 so
/// that the factor of the smallest scale, 2^(0 - 127 + 8), is a normal number.
inline constexpr int kMaxFastScale = 246;

/// The sixteen e2m1 values times the scale of every e8m0 code, 64 bytes per code: what a weight is,
/// with infinity for what overflows and zero for what is subnormal. A checkpoint uses few codes, so
/// the lines in use stay in the first-level cache, and a step's table costs one load.
template <typename V>
struct E2m1Tables {
  struct Values {
    alignas(64) float of[256][16];
  };
  static constexpr Values make() {
    Values tables{};
    for (int code = 0; code < 256; ++code) {
      for (int i = 0; i < 16; ++i) {
        constexpr int kExponents[8] = {0, -1, 0, 0, 1, 1, 2, 2};  // of 0.5, 1, 1.5, 2, 3, 4, 6
        const int magnitude = i % 8;
        const int exponent = code + kExponents[magnitude];
        uint32_t bits = 0;
        if (magnitude > 0 && exponent >= 255) {
          bits = 0x7F800000;
        } else if (magnitude > 0 && exponent > 0) {
          const bool has_half = magnitude > 1 && magnitude % 2 == 1;
          bits = (static_cast<uint32_t>(exponent) << 23) | (has_half ? 0x400000U : 0U);
        }
        if (i >= 8) bits |= 0x80000000U;
        tables.of[code][i] = __builtin_bit_cast(float, bits);
      }
    }
    return tables;
  }
  static constexpr Values kTables = make();
};

/// The factors of one segment of one output, FP8.
template <typename V>
struct Factors {
  alignas(64) float fast[kSegmentSteps];  // 2^(code - 119)
  bool is_fast;                           // all codes are at most kMaxFastScale

  void load(const uint8_t* codes, int64_t steps) {
    alignas(16) uint8_t padded[kSegmentSteps] = {};
    if (steps < kSegmentSteps) {
      for (int64_t s = 0; s < steps; ++s) padded[s] = codes[s];
      codes = padded;
    }
    using I = IntOf<V>;
    I excess = I::set1(0);
    for (int64_t s = 0; s < kSegmentSteps; s += 16) {
      const I wide = I::load(codes + s);
      from_bits(shift_left<23>(wide + I::set1(8))).store(fast + s);
      // Bit 8 of code + 9 is set from code 247 on.
      excess = excess | (wide + I::set1(255 - kMaxFastScale));
    }
    is_fast = !any(equal(excess & I::set1(256), I::set1(256)));
  }
};

/// Bytes of a step as stored.
constexpr int64_t step_bytes(WeightKind kind) {
  switch (kind) {
    case WeightKind::kF32:
      return kStep * 4;
    case WeightKind::kBF16:
      return kStep * 2;
    case WeightKind::kFp8:
      return kStep;
    default:
      return kStep / 2;
  }
}

/// What applies a block's scale: its code, of FP4; its factor, of FP8; others have no scales.
template <WeightKind kKind>
struct ScaleOf {
  using Type = float;
};
template <>
struct ScaleOf<WeightKind::kFp4> {
  using Type = uint8_t;
};

/// A step of a weight row, decoded: `values` points to the row, `step` counts from its start.
template <typename V, WeightKind kKind>
[[gnu::always_inline]] inline auto decode_step(const uint8_t* values, int64_t step,
                                               typename ScaleOf<kKind>::Type scale) {
  if constexpr (kKind == WeightKind::kF32) {
    return V::load_pair(reinterpret_cast<const float*>(values) + step * kStep);
  } else if constexpr (kKind == WeightKind::kBF16) {
    return V::load_pair(reinterpret_cast<const BFloat16*>(values) + step * kStep);
  } else if constexpr (kKind == WeightKind::kFp8) {
    auto pair = V::load_e4m3_pair(values + step * kStep);
    const V factor = V::set1(scale);
    pair.odd = pair.odd * factor;
    pair.even = pair.even * factor;
    return pair;
  } else {
    return V::load_e2m1_pair(values + step * (kStep / 2),
                             V::load(E2m1Tables<V>::kTables.of[scale]));
  }
}

/// The last step of a row whose length is no multiple of 32 (kF32 and kBF16 only), padded.
template <typename V, typename T>
auto decode_tail(const T* row, int64_t step, int64_t k) {
  alignas(64) T padded[kStep] = {};
  for (int64_t i = step * kStep; i < k; ++i) padded[i - step * kStep] = row[i];
  return V::load_pair(padded);
}

/// Decodes steps [begin, begin + count) of output `o`; calls put(i, pair) for the i-th of them.
template <typename V, WeightKind kKind, typename Put>
void decode_segment(const StoredWeight& w, int64_t o, int64_t begin, int64_t count, Put put) {
  const uint8_t* row = w.values + o * w.row_bytes;
  if constexpr (kKind == WeightKind::kF32 || kKind == WeightKind::kBF16) {
    const int64_t whole = w.k / kStep - begin;  // steps of this segment without padding
    const int64_t end = whole < count ? whole : count;
    for (int64_t i = 0; i < end; ++i) put(i, decode_step<V, kKind>(row, begin + i, 1.0F));
    if (end < count) {
      if constexpr (kKind == WeightKind::kF32) {
        put(end, decode_tail<V>(reinterpret_cast<const float*>(row), begin + end, w.k));
      } else {
        put(end, decode_tail<V>(reinterpret_cast<const BFloat16*>(row), begin + end, w.k));
      }
    }
  } else if constexpr (kKind == WeightKind::kFp4) {
    const uint8_t* codes = w.scales + o / w.scale_rows * w.scale_row_bytes + begin;
    for (int64_t i = 0; i < count; ++i) put(i, decode_step<V, kKind>(row, begin + i, codes[i]));
  } else {
    Factors<V> factors;
    const uint8_t* codes = w.scales + o / w.scale_rows * w.scale_row_bytes + begin;
    factors.load(codes, count);
    for (int64_t i = 0; i < count; ++i) {
      const int extra = codes[i] > kMaxFastScale ? codes[i] - kMaxFastScale : 0;
      const float factor = extra > 0 ? 0x1p127F : factors.fast[i];
      auto pair = decode_step<V, kKind>(row, begin + i, factor);
      if (extra > 0) {
        const V rest = V::set1(static_cast<float>(1 << extra));
        pair.odd = pair.odd * rest;
        pair.even = pair.even * rest;
      }
      put(i, pair);
    }
  }
}

}  // namespace deepinfer::cpu
