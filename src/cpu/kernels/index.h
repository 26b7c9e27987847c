#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "cpu/index_task.h"
#include "cpu/kernels/math.h"

// Index scores of sixteen keys at a time, one per lane (index_task.h). Per key and head, dim/4
// byte products of four channels and as many additions of 16-bit words, which a block of 32
// channels cannot overflow: 8 · 2 · 24 · 12 = 4608. Bound: those two instructions.
namespace deepinfer::cpu {

/// Four channels of every lane: unsigned times signed bytes, added in pairs to 16-bit words.
/// Levels overload it beside their vector type.
template <typename I>
I multiply_bytes(I a, I b) {
  int32_t x[16];
  int32_t y[16];
  a.store(x);
  b.store(y);
  for (int l = 0; l < 16; ++l) {
    const auto product = [&](int byte) {
      const int32_t u = (x[l] >> (8 * byte)) & 0xFF;
      return u * static_cast<int8_t>((y[l] >> (8 * byte)) & 0xFF);
    };
    const int32_t low = product(0) + product(1);
    const int32_t high = product(2) + product(3);
    x[l] = static_cast<int32_t>((static_cast<uint32_t>(high) << 16) |
                                (static_cast<uint32_t>(low) & 0xFFFF));
  }
  return I::load(x);
}
/// Adds the 16-bit words of every lane.
template <typename I>
I add_words(I a, I b) {
  const I low = I::set1(0xFFFF);
  return ((a + b) & low) | ((a & (low ^ I::set1(-1))) + (b & (low ^ I::set1(-1))));
}
/// The sum of the two signed words of every lane.
template <typename I>
I sum_words(I a) {
  return shift_right_signed<16>(a) + shift_right_signed<16>(shift_left<16>(a));
}

/// table[byte] for the four bytes of every lane, which are below 16. `table` repeats four times.
template <typename I>
I lookup_bytes(const uint8_t* table, I bytes) {
  int32_t lanes[16];
  bytes.store(lanes);
  for (int32_t& lane : lanes) {
    uint32_t result = 0;
    for (int byte = 0; byte < 4; ++byte) {
      result |= uint32_t{table[(lane >> (8 * byte)) & 15]} << (8 * byte);
    }
    lane = static_cast<int32_t>(result);
  }
  return I::load(lanes);
}

/// Twice the values of the e2m1 codes.
template <typename V>
struct DoubledE2M1 {
  static constexpr int8_t kValues[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
};

/// The bytes of a packed row of codes: of every 32 channels the even ones, then the odd ones.
/// `codes` [heads, dim/2], `scales` [heads, dim/32].
template <typename V>
void pack_query(const uint8_t* codes, const uint8_t* scales, const IndexShape& shape,
                const IndexQuery& out) {
  const auto& values = DoubledE2M1<V>::kValues;
  for (int64_t block = 0; block < shape.heads * shape.dim / 32; ++block) {
    int8_t bytes[32];
    int32_t sum = 0;
    for (int i = 0; i < 16; ++i) {
      const uint8_t pair = codes[16 * block + i];
      bytes[i] = values[pair & 0xF];
      bytes[16 + i] = values[pair >> 4];
      sum += bytes[i] + bytes[16 + i];
    }
    std::memcpy(out.words + 8 * block, bytes, 32);
    // Keys come as value + 12. As a word: the upper word of the lane starts at zero.
    out.offset[block] = (-12 * sum) & 0xFFFF;
    // The products are four times too large.
    out.scale[block] = std::bit_cast<float>(uint32_t{scales[block]} << 23) * 0.25F;
  }
}

/// `codes` and `scales`: of `count` keys (1 to 16), [dim/2] and [dim/32] bytes each.
template <typename V>
void pack_keys(const uint8_t* const* codes, const uint8_t* const* scales, int count, int64_t dim,
               const IndexKeys& out) {
  alignas(64) static constexpr uint8_t kBytes[64] = {
      12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9,  8,  6,  4,  0,  12, 13, 14, 15, 16, 18,
      20, 24, 12, 11, 10, 9,  8,  6,  4,  0,  12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9,
      8,  6,  4,  0,  12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9,  8,  6,  4,  0};
  using I = IntOf<V>;
  for (int64_t block = 0; block < dim / 32; ++block) {
    alignas(64) int32_t raw[4][16];
    alignas(64) int32_t scale[16];
    for (int key = 0; key < 16; ++key) {
      // Lanes without a key repeat the last one; nobody reads their scores.
      const int source = key < count ? key : count - 1;
      int32_t words[4];
      std::memcpy(words, codes[source] + 16 * block, 16);
      for (int w = 0; w < 4; ++w) raw[w][key] = words[w];
      scale[key] = scales[source][block];
    }
    const I nibble = I::set1(0x0F0F0F0F);
    for (int w = 0; w < 4; ++w) {
      const I pairs = I::load(raw[w]);
      int32_t* even = out.words + (8 * block + w) * 16;
      lookup_bytes(kBytes, pairs & nibble).store(even);
      lookup_bytes(kBytes, shift_right<4>(pairs) & nibble).store(even + 64);
    }
    from_bits(shift_left<23>(I::load(scale))).store(out.scale + 16 * block);
  }
}

/// Scores of sixteen keys for one query.
template <typename V>
void score_keys(const IndexQuery& query, const IndexKeys& keys, const IndexShape& shape,
                float* scores) {
  using I = IntOf<V>;
  const int64_t blocks = shape.dim / 32;
  V sum = V::zero();
  for (int64_t h = 0; h < shape.heads; ++h) {
    V dot = V::zero();
    for (int64_t b = 0; b < blocks; ++b) {
      const int32_t* q = query.words + 8 * (h * blocks + b);
      const int32_t* k = keys.words + 8 * 16 * b;
      I words = I::set1(query.offset[h * blocks + b]);
      for (int i = 0; i < 8; ++i) {
        words = add_words(words, multiply_bytes(I::load(k + 16 * i), I::set1(q[i])));
      }
      const V scaled = to_float(sum_words(words)) * V::load(keys.scale + 16 * b);
      dot = fma(scaled, V::set1(query.scale[h * blocks + b]), dot);
    }
    sum = fma(V::set1(query.weights[h]), max(dot, V::zero()), sum);
  }
  // Infinite weights can make a NaN, which no order has a place for: max gives -∞ for it.
  const V score = sum * V::set1(1.0F / std::sqrt(static_cast<float>(shape.dim)));
  max(score, V::set1(-INFINITY)).store(scores);
}

/// Places of n (a multiple of 16) scores above `bound`, ascending; returns how many.
template <typename V>
int64_t find_above(const float* scores, int64_t n, float bound, int32_t* places) {
  int64_t count = 0;
  for (int64_t i = 0; i < n; i += 16) {
    const V v = V::load(scores + i);
    // Once the best are full, hardly any sixteen hold a better one.
    if (!(reduce_max(v) > bound)) continue;
    for (int64_t l = 0; l < 16; ++l) {
      if (scores[i + l] > bound) places[count++] = static_cast<int32_t>(i + l);
    }
  }
  return count;
}

}  // namespace deepinfer::cpu
