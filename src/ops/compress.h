#pragma once

#include "ops/rows.h"
#include "tensor/cache_format.h"

namespace deepinfer::ops {

using deepinfer::kPendingRows;

/// Compressed entries and index keys of a KV source (spec/model.md §4, §5). A row completes entry
/// (t+1)/ratio - 1 iff (t+1) mod ratio is 0; at ratio 2 the partner's u, g come from this step or
/// from `pending`. kReplay rows refresh `pending` and write no page.
struct CompressParams {
  TensorView x;  // [B, d] act: attn_in
  RowBatch rows;
  SlotState slots;
  TensorView wkv;         // [D, d] bf16: bf16 result at ratio 1, fp32 at ratio 2
  TensorView wgate;       // [D, d] bf16, ratio 2 only; empty at ratio 1
  TensorView norm;        // [D] bf16
  TensorView index_wk;    // [Di, D] bf16
  TensorView index_norm;  // [Di] bf16
  Rope rope;
  float eps = 0;
  CompressedPages pages;  // out
  TensorView pending;  // [S, kPendingRows, 2, D] f32, in and out: u and g of even position t in row
                       // (t/2) mod kPendingRows; empty at ratio 1
  TensorView trace_latent;  // [B, D] f32: latent of the entry that the row completes; may be empty
};
void check(const CompressParams& params);

}  // namespace deepinfer::ops
