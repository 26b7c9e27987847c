#pragma once

#include "ops/rows.h"

namespace deepinfer::ops {

/// Attention of every row over its window and its selected compressed entries (spec/model.md §3 and
/// §10 item 7). The keys of a row form one list, window oldest first, then entries ascending, cut
/// in tiles of 64; the result of a row depends on nothing else. Window positions before the step
/// are read from the rings (a row whose tag differs is not visible), those of the step from
/// window_codes. Rows that run no further than their keys follow the first B rows there.
struct SparseAttentionParams {
  TensorView q;  // [B, H, D] act: rotated
  RowBatch rows;
  SlotState slots;
  int64_t window = 0;        // W
  WindowRings rings;         // this layer's
  TensorView window_codes;   // [>= B, D] e4m3: this step's keys, from qkv
  TensorView window_scales;  // [>= B, D/32] e8m0
  TensorView window_floor;   // [B] i64: no window key below this position is read; may be empty (0)
  CompressedPages pages;     // the group's entries; views may be empty (ratio 0)
  TensorView selected;       // [B, K] i32 ascending; may be empty
  TensorView num_selected;   // [B] i32
  TensorView sink;           // [H] f32
  Rope rope;                 // for the inverse rotation of the output
  TensorView out;            // [B, H, D] act: after the inverse rotation
  TensorView trace_core;     // [B, H, D] f32: before it; may be empty
};
void check(const SparseAttentionParams& params);

/// Keys per tile of the running softmax; part of the numerics.
inline constexpr int64_t kAttentionTile = 64;

/// Moves the step's window keys to the rings: of each slot, the rows that the ring keeps.
struct WindowStoreParams {
  RowBatch rows;
  TensorView window_codes;   // [B, D] e4m3
  TensorView window_scales;  // [B, D/32] e8m0
  WindowRings rings;         // out
};
void check(const WindowStoreParams& params);

}  // namespace deepinfer::ops
