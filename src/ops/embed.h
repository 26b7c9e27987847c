#pragma once

#include "ops/rows.h"

namespace deepinfer::ops {

/// Residual streams of new rows: all m copies equal the embedding row (spec/model.md §2).
struct EmbedParams {
  TensorView token;    // [B] i32
  TensorView table;    // [V, d] bf16
  TensorView streams;  // [B, m, d] act, out
};
void check(const EmbedParams& params);

}  // namespace deepinfer::ops
