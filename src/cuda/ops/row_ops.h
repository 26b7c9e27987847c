#pragma once

#include "cuda/context.h"
#include "ops/rows.h"

/// What several operations do to the rows of a matrix between products. All sums have an order that
/// the row's length fixes. B = rows; "weight" is bf16 or fp32.
namespace deepinfer::cuda {

/// out = rms(x; weight) → bf16 (spec/model.md §1). x, out: [B, n] bf16; may be the same memory.
void rms_norm_rows(const TensorView& x, const TensorView& weight, float eps, const TensorView& out,
                   Context& context);

/// Rotates the last channels of every head in place (spec/model.md §3). heads: [B, H, D] bf16;
/// position: [B] i64.
void rotate_heads(const TensorView& heads, const TensorView& position, const ops::Rope& rope,
                  Context& context);

/// Window keys from their projections: norm, rotation, FP8 of all channels (spec/model.md §3, §6).
/// kv: [B, D] bf16; codes: [B, D] e4m3, out; scales: [B, D/32] e8m0, out.
void window_keys(const TensorView& kv, const TensorView& norm, float eps,
                 const TensorView& position, const ops::Rope& rope, const TensorView& codes,
                 const TensorView& scales, Context& context);

/// What the logits read: x = rms(Σ_j pre[j]·S[j] → bf16; norm) → bf16 (spec/model.md §2, end).
/// streams: [B, m, d] bf16; pre: [B, m] f32; x: [B, d] bf16, out; trace_collapse (before the norm)
/// and trace_norm: [B, d] f32, may be empty.
void collapse_norm(const TensorView& streams, const TensorView& pre, const TensorView& norm,
                   float eps, const TensorView& x, const TensorView& trace_collapse,
                   const TensorView& trace_norm, Context& context);

/// The FP8 round trip in front of a product (spec/model.md §10 item 3). x, out: [B, K] bf16, K a
/// multiple of 32; may be the same memory.
void round_fp8_rows(const TensorView& x, const TensorView& out, Context& context);

}  // namespace deepinfer::cuda
