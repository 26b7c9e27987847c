#pragma once

#include "ops/rows.h"

namespace deepinfer::ops {

/// Final collapse, norm and head (spec/model.md §2, end): fp32 logits of n rows.
struct LogitsParams {
  TensorView streams;  // [n, m, d] act
  TensorView pre;      // [n, m] f32: of the last site
  TensorView norm;     // [d] bf16
  TensorView head;     // [V, d] bf16
  float eps = 0;
  TensorView logits;          // [n, V] f32, out
  TensorView trace_collapse;  // [n, d] f32; may be empty
  TensorView trace_norm;      // [n, d] f32; may be empty
};
void check(const LogitsParams& params);

/// DSpark tap (spec/model.md §10 item 6): mean of the streams in fp32 → act.
struct TapParams {
  TensorView streams;  // [B, m, d] act
  TensorView out;      // [B, d] act; may be a strided slice of [B, targets, d]
};
void check(const TapParams& params);

}  // namespace deepinfer::ops
