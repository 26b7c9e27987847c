#pragma once

#include <cstdint>

#include "tensor/quantize.h"

/// Sizes of what the model caches (spec/model.md §6), for those who plan memory and those who
/// allocate it.
namespace deepinfer {

/// Tokens per page of compressed entries. Even, so that a ratio-2 group never straddles pages.
inline constexpr int64_t kPageTokens = 64;
/// Ring rows beyond the window: room for two verifications of up to eight rows in flight
/// (design.md, "Caches").
inline constexpr int64_t kRingSlack = 16;
/// Open ratio-2 pairs kept per slot and source: enough to step back over two verifications of up
/// to eight rows each.
inline constexpr int64_t kPendingRows = 8;

/// Bytes of one window key, of one compressed entry and of one index key: codes and scales.
constexpr int64_t window_key_bytes(int64_t head_dim) {
  return head_dim + head_dim / kFp8Block;
}
constexpr int64_t entry_bytes(int64_t head_dim) {
  return head_dim / 2 + head_dim / kFp4KvBlock;
}
constexpr int64_t index_key_bytes(int64_t index_head_dim) {
  return index_head_dim / 2 + index_head_dim / kFp8Block;
}

/// Bytes of a slot's window rings with their position tags, and of the open pair rows of one
/// ratio-2 source.
constexpr int64_t ring_bytes(int64_t num_layers, int64_t window, int64_t head_dim) {
  constexpr int64_t kTag = sizeof(int64_t);
  return num_layers * (window + kRingSlack) * (window_key_bytes(head_dim) + kTag);
}
constexpr int64_t open_pair_bytes(int64_t head_dim) {
  constexpr int64_t kFloat = sizeof(float);
  return kPendingRows * 2 * head_dim * kFloat;
}

/// Bytes of the rings of `num_layers` layers in a snapshot.
constexpr int64_t snapshot_bytes(int64_t num_layers, int64_t window, int64_t head_dim) {
  return num_layers * (window + kRingSlack) * window_key_bytes(head_dim);
}

}  // namespace deepinfer
