#pragma once

#include "cpu/kernels/math.h"
#include "cpu/products.h"

/// Stored weights to fp32 lanes, a step at a time. Everything is a template over the level's vector
/// type V, so that no two levels share a function.
namespace deepinfer::cpu {

/// The largest e8m0 code whose factor 2^(code - 127 + 8) is finite. Scales above it make every
/// weight of 256 or more infinite; they take the slow way.
inline constexpr int kMaxFastScale = 246;

/// The e2m1 values · 2^-8 in the order of their codes; load_e4m3's are scaled by the same 2^-8, so
/// that the factor of the smallest scale, 2^(0 - 127 + 8), is a normal number.
template <typename V>
V e2m1_table() {
  alignas(64) static constexpr float kTable[16] = {
      0.0F,  0x1p-9F,  0x1p-8F,  0x1.8p-8F,  0x1p-7F,  0x1.8p-7F,  0x1p-6F,  0x1.8p-6F,
      -0.0F, -0x1p-9F, -0x1p-8F, -0x1.8p-8F, -0x1p-7F, -0x1.8p-7F, -0x1p-6F, -0x1.8p-6F};
  return V::load(kTable);
}

/// The factors of one segment of one output.
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

/// A step of a weight row, decoded: `values` points to the row, `step` counts from its start.
template <typename V, WeightKind kKind>
[[gnu::always_inline]] inline auto decode_step(const uint8_t* values, int64_t step, float factor) {
  if constexpr (kKind == WeightKind::kF32) {
    return V::load_pair(reinterpret_cast<const float*>(values) + step * kStep);
  } else if constexpr (kKind == WeightKind::kBF16) {
    return V::load_pair(reinterpret_cast<const BFloat16*>(values) + step * kStep);
  } else if constexpr (kKind == WeightKind::kFp8) {
    auto pair = V::load_e4m3_pair(values + step * kStep);
    const V scale = V::set1(factor);
    pair.odd = pair.odd * scale;
    pair.even = pair.even * scale;
    return pair;
  } else {
    return V::load_e2m1_pair(values + step * (kStep / 2), e2m1_table<V>() * V::set1(factor));
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
