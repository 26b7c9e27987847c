#pragma once

#include "ops/rows.h"

namespace deepinfer::ops {

/// Query and window-key projections (spec/model.md §3). wq_a and wkv read the same FP8-rounded x.
/// The rows' window keys go to a buffer of the step; window_store moves them to the rings after
/// attention, because a long prompt chunk would overwrite ring rows that its own first rows still
/// read. The first Q <= B rows get queries; the others have keys for those to see and go no further
/// (design.md, "Depth per row").
struct QkvParams {
  TensorView x;         // [B, d] act: attn_in
  TensorView position;  // [B] i64
  QuantView wq_a;       // [rq, d] FP8
  TensorView q_norm;    // [rq] bf16
  QuantView wq_b;       // [H·D, rq] FP8
  QuantView wkv;        // [D, d] FP8
  TensorView kv_norm;   // [D] bf16
  Rope rope;
  float eps = 0;
  TensorView r;             // [Q, rq] act, out: the normed low-rank query, also the indexer's input
  TensorView q;             // [Q, H, D] act, out: rotated
  TensorView window_codes;  // [B, D] e4m3, out: rotated and quantised
  TensorView window_scales;  // [B, D/32] e8m0, out
};
void check(const QkvParams& params);

}  // namespace deepinfer::ops
