#pragma once

#include <cstdint>

#include "tensor/formats.h"

namespace deepinfer::cpu {

/// One key of a row's list, as stored.
struct StoredKey {
  const uint8_t* codes;   // window key: [D] e4m3; entry: [D/2] e2m1x2
  const uint8_t* scales;  // window key: [D/32] e8m0; entry: [D/16] e4m3
  bool is_entry;
};

/// Attention of some heads of one row over the row's keys.
struct AttentionTask {
  const BFloat16* q;      // [heads, head_dim]
  const StoredKey* keys;  // [num_keys]
  int64_t num_keys;
  const float* sink;  // [heads]
  int64_t heads;
  int64_t head_dim;     // a multiple of 32
  const float* cosine;  // [num_pairs rounded up to 16]: the inverse rotation of the output
  const float* sine;
  int64_t num_pairs;
  BFloat16* out;   // [heads, head_dim]
  float* trace;    // [heads, head_dim]: before the inverse rotation; null: not wanted
  float* scratch;  // attention_scratch() floats, 64-byte aligned
};

/// Keys per tile of the running softmax: ops::kAttentionTile.
inline constexpr int64_t kTileKeys = 64;

/// Floats of scratch memory of a task: decoded keys, then queries, sums, probabilities, maximum and
/// denominator of every head.
constexpr int64_t attention_scratch(int64_t heads, int64_t head_dim) {
  return kTileKeys * head_dim + heads * (2 * head_dim + kTileKeys + 32);
}

}  // namespace deepinfer::cpu
