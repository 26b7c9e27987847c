#pragma once

#include <cstdint>
#include <span>

#include "ops/rows.h"

namespace deepinfer::ops {

/// n-gram memory: hashes the look-back tokens, gathers table rows, writes the gated value into
/// every stream (spec/model.md §7; spec/checkpoint.md §5). C = (N-1)·heads columns of width w.
struct EngramParams {
  TensorView
      context;  // [B, N] i32: tokens at t, t-1, …; -1 before the start of the sequence or dead
  TensorView token_map;    // [V] i32: compressed id of each token
  int32_t pad = 0;         // compressed id that stands for missing tokens
  TensorView multipliers;  // [N] i64
  TensorView primes;       // [C] i64, order 2 heads first
  TensorView offsets;      // [C] i64: exclusive running sum of primes
  QuantView table;         // [rows, w] e4m3, scale [rows, w/32] e8m0, scale_rows 1: memory-mapped,
                           // gathered by row
  QuantView wkv;           // [(m+1)·d, C·w] FP8: m keys, then the value
  TensorView q_weight;     // [m, d] bf16
  TensorView k_weight;     // [m, d] bf16
  float eps = 0;
  TensorView streams;     // [B, m, d] act, in and out
  TensorView trace_rows;  // [B, C] i64: table rows read; may be empty
  TensorView trace_gate;  // [B, m] f32; may be empty
};
void check(const EngramParams& params);

/// The table rows of one position (spec/checkpoint.md §5.5): `context` as above; writes C row
/// numbers.
void engram_rows(const EngramParams& params, std::span<const int32_t> context,
                 std::span<int64_t> rows);

}  // namespace deepinfer::ops
