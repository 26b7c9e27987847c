#pragma once

#include <cstdint>
#include <span>

#include "ops/rows.h"

namespace deepinfer::ops {

/// Sampling parameters of one row, plain data so that they can be copied to a device.
struct SampleRow {
  uint64_t seed = 0;
  float temperature = 0;  // 0: greedy
  float top_p = 1;        // 1: off
  float min_p = 0;        // 0: off
  int32_t top_k = 0;      // 0: off
  float repetition_penalty =
      1;  // > 0; divides positive and multiplies negative logits of tokens seen
  float frequency_penalty = 0;  // times the count of the token in the output
  float presence_penalty = 0;   // once if the token is in the output
  int32_t forced_token = -1;    // >= 0: this token is taken (scoring); nothing is drawn
  int32_t banned_token = -1;    // >= 0: this id is out (the end token before min_tokens)
};
/// Whether the row's logits depend on the tokens seen: it needs counts.
inline bool has_penalty(const SampleRow& row) {
  return row.repetition_penalty != 1 || row.frequency_penalty != 0 || row.presence_penalty != 0;
}

/// Draws one token per row from its logits (spec/model.md §10 items 13–16) and reports
/// log-probabilities of the unmodified logits. Order: penalties, bias, mask, then greedy or filters
/// and noise. A NaN counts as -∞, which is never drawn. If nothing can be drawn, the token is the
/// lowest id that mask and ban leave (0 if none is left). Log-probabilities: Σ exp in double by
/// ascending id, so they are a function of the row's logits alone.
struct SampleParams {
  TensorView logits;                // [n, V] f32; not modified
  std::span<const SampleRow> rows;  // [n]
  TensorView slot;                  // [n] i32
  TensorView position;              // [n] i64: of the row; the token drawn belongs to position + 1
  TensorView counts;  // [S, V] i32: bits 0–30 count the token in the output, bit 31 is set if it is
                      // in the prompt; may be empty when no row has a penalty
  TensorView bias;    // [n, V] f32 added to the logits; may be empty
  TensorView mask;    // [n, ceil(V/32)] i32, bit = allowed; may be empty
  TensorView token;   // [n] i32, out
  TensorView logprob;       // [n] f32, out: log-probability of the token
  TensorView top_tokens;    // [n, T] i32, out: the T most likely, ties to the lowest id, then -1
                            // where T > V; may be empty
  TensorView top_logprobs;  // [n, T] f32, out; -∞ beside -1
};
void check(const SampleParams& params);

}  // namespace deepinfer::ops
