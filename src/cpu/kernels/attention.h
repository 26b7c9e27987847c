#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "cpu/attention_task.h"
#include "cpu/kernels/math.h"
#include "cpu/kernels/rows.h"

// Attention of one row (spec/model.md §10 item 7). A tile of 64 keys is decoded once for all heads
// of the task, to fp32 in the order of the dot product (of every 32 channels the odd ones, then the
// even ones), which stays in the second-level cache. Blocks of heads × keys (scores) and heads ×
// channels (values) then run in registers. Bound: fused multiply-adds, two per key, head and
// channel; with 4 heads, decoding is about a third of it.
namespace deepinfer::cpu {

/// Heads × keys, or heads × vectors of channels, whose sums fit the registers.
template <typename V>
inline constexpr int kBlock = alignof(V) == 64 ? 4 : 2;

/// Decodes an FP8 window key to [D/32][odd 16, even 16].
template <typename V>
void decode_window_key(const uint8_t* codes, const uint8_t* scales, int64_t head_dim, float* out) {
  for (int64_t i = 0; i < head_dim; i += 32) {
    // V::load_e4m3_pair gives value · 2^-8. Scales beyond 2^119 have infinite values anyway.
    const uint32_t exponent = scales[i / 32] + 8U;
    const V scale = V::set1(std::bit_cast<float>((exponent > 255 ? 255 : exponent) << 23));
    const auto value = V::load_e4m3_pair(codes + i);
    (value.odd * scale).store(out + i);
    (value.even * scale).store(out + i + 16);
  }
}

/// Decodes an FP4 entry to the same order.
template <typename V>
void decode_entry(const uint8_t* codes, const uint8_t* scales, int64_t head_dim, float* out) {
  alignas(64) static constexpr int32_t kUpperHalf[16] = {0, 0, 0, 0, 0, 0, 0, 0,
                                                         1, 1, 1, 1, 1, 1, 1, 1};
  // +0 for both zeros: their sign cannot change a sum.
  alignas(64) static constexpr float kValues[16] = {0, .5F,  1,  1.5F,  2,  3,  4,  6,
                                                    0, -.5F, -1, -1.5F, -2, -3, -4, -6};
  const V table = V::load(kValues);
  const IntOf<V> upper = IntOf<V>::load(kUpperHalf);
  for (int64_t begin = 0; begin < head_dim; begin += 512) {
    // The e4m3 scales of up to 512 channels, 16 channels each.
    const int64_t channels = head_dim - begin < 512 ? head_dim - begin : 512;
    uint8_t padded[32] = {};
    std::memcpy(padded, scales + begin / 16, static_cast<size_t>(channels / 16));
    alignas(64) float values[32];
    store_pair(V::load_e4m3_pair(padded), values);
    const V eight = V::set1(0x1p8F);
    const V scale_table[2] = {V::load(values) * eight, V::load(values + 16) * eight};
    for (int64_t i = 0; i < channels; i += 32) {
      const auto value = V::load_e2m1_pair(codes + (begin + i) / 2, table);
      // Lanes 0 to 7 are of the first block of 16 channels, lanes 8 to 15 of the second.
      const IntOf<V> index = upper + IntOf<V>::set1(static_cast<int32_t>(i / 16 % 16));
      const V scale = lookup(scale_table[i / 256], index);
      (value.odd * scale).store(out + begin + i);
      (value.even * scale).store(out + begin + i + 16);
    }
  }
}

/// Scores of kHeads heads × kKeys keys: dot · scale, to scores[head * kTileKeys + key].
template <typename V, int kHeads, int kKeys>
void score_block(const float* q, const float* keys, int64_t head_dim, float scale, float* scores) {
  V sums[kHeads][kKeys];
  for (auto& row : sums) {
    for (V& sum : row) sum = V::zero();
  }
  for (int64_t i = 0; i < head_dim; i += 16) {  // odd channels, then even ones
    V key[kKeys];
    for (int k = 0; k < kKeys; ++k) key[k] = V::load(keys + k * head_dim + i);
    for (int h = 0; h < kHeads; ++h) {
      const V query = V::load(q + h * head_dim + i);
      for (int k = 0; k < kKeys; ++k) sums[h][k] = fma(query, key[k], sums[h][k]);
    }
  }
  if constexpr (kHeads == 4 && kKeys == 4) {
    // Sixteen sums side by side, in the order that reduce_add_each() turns to heads × keys.
    const V by_key[16] = {sums[0][0], sums[1][0], sums[2][0], sums[3][0],  //
                          sums[0][1], sums[1][1], sums[2][1], sums[3][1],  //
                          sums[0][2], sums[1][2], sums[2][2], sums[3][2],  //
                          sums[0][3], sums[1][3], sums[2][3], sums[3][3]};
    alignas(64) float block[16];
    (reduce_add_each(by_key) * V::set1(scale)).store(block);
    for (int h = 0; h < 4; ++h) std::memcpy(scores + h * kTileKeys, block + 4 * h, 16);
  } else {
    for (int h = 0; h < kHeads; ++h) {
      for (int k = 0; k < kKeys; ++k) scores[h * kTileKeys + k] = reduce_add(sums[h][k]) * scale;
    }
  }
}

/// sum[head][channels] = sum · rescale[head] + Σ p[head][key] · key[channels] for kHeads heads and
/// kVectors vectors of channels. Keys in pairs, the odd one first, as in the dot product.
template <typename V, int kHeads, int kVectors>
void value_block(const float* p, const float* rescale, const float* keys, int64_t count,
                 int64_t head_dim, float* sum) {
  V sums[kHeads][kVectors];
  for (int h = 0; h < kHeads; ++h) {
    for (int v = 0; v < kVectors; ++v) {
      sums[h][v] = V::load(sum + h * head_dim + 16 * v) * V::set1(rescale[h]);
    }
  }
  const auto add = [&](int64_t j) {
    V key[kVectors];
    for (int v = 0; v < kVectors; ++v) key[v] = V::load(keys + j * head_dim + 16 * v);
    for (int h = 0; h < kHeads; ++h) {
      const V weight = V::set1(p[h * kTileKeys + j]);
      for (int v = 0; v < kVectors; ++v) sums[h][v] = fma(weight, key[v], sums[h][v]);
    }
  };
  for (int64_t j = 0; j < count; j += 2) {
    if (j + 1 < count) add(j + 1);
    add(j);
  }
  for (int h = 0; h < kHeads; ++h) {
    for (int v = 0; v < kVectors; ++v) sums[h][v].store(sum + h * head_dim + 16 * v);
  }
}

/// The running softmax of the heads of one row.
template <typename V>
class RowAttention {
 public:
  explicit RowAttention(const AttentionTask& task)
      : t_(task),
        d_(task.head_dim),
        tile_(task.scratch),
        q_(tile_ + kTileKeys * d_),
        sum_(q_ + task.heads * d_),
        p_(sum_ + task.heads * d_),
        max_(p_ + task.heads * kTileKeys),
        denominator_(max_ + task.heads),
        rescale_(denominator_ + task.heads) {}

  void run() {
    for (int64_t i = 0; i < t_.heads * d_; i += 32) {
      const auto pair = V::load_pair(t_.q + i);
      pair.odd.store(q_ + i);
      pair.even.store(q_ + i + 16);
      V::zero().store(sum_ + i);
      V::zero().store(sum_ + i + 16);
    }
    for (int64_t h = 0; h < t_.heads; ++h) {
      max_[h] = -1e30F;
      denominator_[h] = 0;
    }
    for (int64_t begin = 0; begin < t_.num_keys; begin += kTileKeys) {
      const int64_t count = t_.num_keys - begin < kTileKeys ? t_.num_keys - begin : kTileKeys;
      for (int64_t j = 0; j < count; ++j) decode(t_.keys[begin + j], tile_ + j * d_);
      score_tile(count);
      for (int64_t h = 0; h < t_.heads; ++h) soften(h, count);
      for_head_blocks(
          [&](int64_t h, auto heads) { add_values<decltype(heads)::kValue>(h, count); });
    }
    for (int64_t h = 0; h < t_.heads; ++h) finish(h);
  }

 private:
  template <int kN>
  struct Constant {
    static constexpr int kValue = kN;
  };

  void decode(const StoredKey& key, float* out) {
    if (key.is_entry) {
      decode_entry<V>(key.codes, key.scales, d_, out);
    } else {
      decode_window_key<V>(key.codes, key.scales, d_, out);
    }
  }

  template <typename Body>
  void for_head_blocks(const Body& body) {
    int64_t h = 0;
    for (; h + kBlock<V> <= t_.heads; h += kBlock<V>) body(h, Constant<kBlock<V>>{});
    for (; h < t_.heads; ++h) body(h, Constant<1>{});
  }

  /// Keys in groups that stay in the first-level cache while all heads meet them. The last block
  /// may read rows behind `count`, whose scores nobody uses.
  void score_tile(int64_t count) {
    constexpr int64_t kGroup = 8;
    const float scale = 1.0F / std::sqrt(static_cast<float>(d_));
    for (int64_t begin = 0; begin < count; begin += kGroup) {
      const int64_t end = begin + kGroup < count ? begin + kGroup : count;
      for_head_blocks([&](int64_t h, auto heads) {
        for (int64_t j = begin; j < end; j += kBlock<V>) {
          score_block<V, decltype(heads)::kValue, kBlock<V>>(q_ + h * d_, tile_ + j * d_, d_, scale,
                                                             p_ + h * kTileKeys + j);
        }
      });
    }
  }

  /// Scores of a tile to probabilities relative to the new maximum, rounded to bf16; the
  /// denominator takes them unrounded.
  void soften(int64_t h, int64_t count) {
    float* p = p_ + h * kTileKeys;
    for (int64_t j = count; j < kTileKeys; ++j) p[j] = -INFINITY;
    V score[4];
    V largest = V::set1(max_[h]);
    for (int i = 0; i < 4; ++i) {
      score[i] = V::load(p + 16 * i);
      largest = max(largest, score[i]);
    }
    const float top = reduce_max(largest);
    const V shift = V::set1(top);
    for (int i = 0; i < 4; ++i) {
      score[i] = exp(score[i] - shift);
      round_to_bf16(score[i]).store(p + 16 * i);
    }
    const float tile_sum = reduce_add((score[0] + score[1]) + (score[2] + score[3]));
    const float rescale = first_lane(exp(V::set1(max_[h]) - shift));
    denominator_[h] = denominator_[h] * rescale + tile_sum;
    rescale_[h] = rescale;
    max_[h] = top;
  }

  static float first_lane(V v) {
    alignas(64) float lanes[16];
    v.store(lanes);
    return lanes[0];
  }

  template <int kHeads>
  void add_values(int64_t h, int64_t count) {
    constexpr int64_t kChannels = 16 * kBlock<V>;
    int64_t i = 0;
    const auto run = [&](auto vectors) {
      value_block<V, kHeads, decltype(vectors)::kValue>(p_ + h * kTileKeys, rescale_ + h, tile_ + i,
                                                        count, d_, sum_ + h * d_ + i);
    };
    for (; i + kChannels <= d_; i += kChannels) run(Constant<kBlock<V>>{});
    for (; i < d_; i += 16) run(Constant<1>{});
  }

  void finish(int64_t h) {
    const float sink = first_lane(exp(V::set1(t_.sink[h]) - V::set1(max_[h])));
    const V divisor = V::set1(denominator_[h] + sink);
    BFloat16* out = t_.out + h * d_;
    for (int64_t i = 0; i < d_; i += 32) {
      const float* sum = sum_ + h * d_ + i;
      store_pair<V>({.odd = V::load(sum) / divisor, .even = V::load(sum + 16) / divisor}, out + i);
    }
    if (t_.trace != nullptr) {
      for (int64_t i = 0; i < d_; ++i) t_.trace[h * d_ + i] = to_float(out[i]);
    }
    rotate_pairs<V>(out + d_ - 2 * t_.num_pairs, t_.cosine, t_.sine, t_.num_pairs);
  }

  const AttentionTask& t_;
  const int64_t d_;
  float* const tile_;         // [kTileKeys, D] decoded keys
  float* const q_;            // [heads, D] in the keys' order, as sum_
  float* const sum_;          // [heads, D]
  float* const p_;            // [heads, kTileKeys]
  float* const max_;          // [heads]
  float* const denominator_;  // [heads]
  float* const rescale_;      // [heads]
};

template <typename V>
void attend(const AttentionTask& task) {
  RowAttention<V>(task).run();
}

}  // namespace deepinfer::cpu
