#pragma once

#include "ops/rows.h"

namespace deepinfer::ops {

/// mHC before a sub-layer: mix coefficients of the streams, collapse with the previous site's
/// `pre`, norm (spec/model.md §2).
struct SiteBeginParams {
  TensorView streams;   // [B, m, d] act
  TensorView pre_prev;  // [B, m] f32: `pre` of the previous site; (1, 0, …) at the first
  TensorView fn;        // [2m + m², m·d] f32
  TensorView base;      // [2m + m²] f32
  TensorView scale;     // [3] f32: pre, post, comb
  TensorView norm;      // [d] bf16
  float eps = 0;        // ε
  float hc_eps = 0;     // ε_hc
  int64_t sinkhorn_iterations = 0;
  TensorView x;     // [B, d] act, out: rms(collapsed; norm)
  TensorView pre;   // [B, m] f32, out; may be the memory of pre_prev
  TensorView post;  // [B, m] f32, out
  TensorView comb;  // [B, m, m] f32, out: comb[j][k] carries stream j into stream k
};
void check(const SiteBeginParams& params);

/// mHC after a sub-layer: S'[k] = post[k]·y + Σ_j comb[j][k]·S[j], one fp32 expression rounded
/// once.
struct SiteEndParams {
  TensorView y;        // [B, d] act
  TensorView post;     // [B, m] f32
  TensorView comb;     // [B, m, m] f32
  TensorView streams;  // [B, m, d] act, in and out
};
void check(const SiteEndParams& params);

}  // namespace deepinfer::ops
