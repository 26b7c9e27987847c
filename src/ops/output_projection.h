#pragma once

#include "ops/rows.h"

namespace deepinfer::ops {

/// Grouped output projection (spec/model.md §3): group g of the heads through rows [g·ro, (g+1)·ro)
/// of wo_a (input not quantised), the concatenated results through wo_b.
struct OutputProjectionParams {
  TensorView o;        // [B, H, D] act
  int64_t groups = 1;  // G
  QuantView wo_a;      // [G·ro, H/G·D] FP8
  QuantView wo_b;      // [d, G·ro] FP8
  TensorView y;        // [B, d] act, out
};
void check(const OutputProjectionParams& params);

}  // namespace deepinfer::ops
