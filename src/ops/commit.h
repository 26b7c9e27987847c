#pragma once

#include <span>

#include "ops/rows.h"

namespace deepinfer::ops {

/// How one slot leaves a step.
struct CommitEntry {
  int32_t slot;
  int32_t last_row;    // batch row of the last committed token
  int32_t sample_row;  // row of `token` that becomes last_token; -1: none (the prompt goes on)
};

/// The last operation of a step: advances committed lengths, look-back tokens, last tokens and
/// output counts.
struct CommitParams {
  std::span<const CommitEntry> entries;
  RowBatch rows;
  TensorView token;   // [n] i32: from sample; may be empty if no entry samples
  TensorView counts;  // [S, V] i32, see SampleParams; may be empty
  SlotState slots;    // in and out
};
void check(const CommitParams& params);

}  // namespace deepinfer::ops
