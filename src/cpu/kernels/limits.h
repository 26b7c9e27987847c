#pragma once

#include <cstdint>

#include "cpu/kernels/math.h"

// Loops that do nothing but what limits others: reading, and multiply-adds.
namespace deepinfer::cpu {

/// Reads n (a multiple of 256) bytes. The result depends on all of them.
template <typename V>
float read_all(const uint8_t* bytes, int64_t n) {
  const auto* words = reinterpret_cast<const int32_t*>(bytes);
  IntOf<V> lanes[4] = {};
  for (int64_t i = 0; i < n / 4; i += 64) {
    for (int l = 0; l < 4; ++l) lanes[l] = lanes[l] ^ IntOf<V>::load(words + i + 16 * l);
  }
  return reduce_max(to_float((lanes[0] ^ lanes[1]) ^ (lanes[2] ^ lanes[3])));
}

/// Sums that hide the latency of the multiply-adds and fit the registers. Returns the operations
/// done, two per multiply-add and lane.
template <typename V>
double multiply_add(int64_t rounds) {
  constexpr int kSums = alignof(V) == 64 ? 12 : 5;
  V sums[kSums];
  for (V& sum : sums) sum = V::set1(1.0F);
  const V factor = V::set1(0.5F);
  for (int64_t i = 0; i < rounds; ++i) {
    for (V& sum : sums) sum = fma(sum, factor, factor);
  }
  V total = V::zero();
  for (const V& sum : sums) total = total + sum;
  // The sums stay at 1; the compiler does not know.
  return static_cast<double>(rounds) * kSums * 16 * 2 * static_cast<double>(reduce_max(total)) /
         kSums;
}

}  // namespace deepinfer::cpu
