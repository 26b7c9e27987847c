#pragma once

#include "ops/rows.h"

namespace deepinfer::ops {

/// The candidate blocks of each row, published by the candidate source (spec/model.md §5).
struct CandidateBlocks {
  TensorView blocks;  // [B, max_blocks] i32: kept blocks, ascending
  TensorView count;   // [B] i32
  int64_t block_size = 0;
};

/// Scores the visible entries and selects the K best (spec/model.md §5). Selected lists ascend;
/// ties go to the lowest entry. Entries of the step's own rows are in the pages already.
struct IndexSelectParams {
  TensorView x;  // [B, d] act: attn_in
  TensorView r;  // [B, rq] act: from qkv
  RowBatch rows;
  SlotState slots;
  QuantView wq_b;           // [Hi·Di, rq] FP8
  TensorView weights_proj;  // [Hi, d] bf16
  Rope rope;
  CompressedPages pages;        // the group's keys
  CandidateBlocks restrict_to;  // may be empty: all visible entries compete
  CandidateBlocks publish;      // out; may be empty: only the candidate source publishes
  TensorView selected;      // [B, K] i32, out: ascending entry numbers; K = the model's index_topk
  TensorView num_selected;  // [B] i32, out
  TensorView trace_query;   // [B, Hi, Di] f32: rotated, quantised queries; may be empty
  TensorView trace_scores;  // [B, entries] f32: scores before any mask, entries not visible
                            // included; may be empty
};
void check(const IndexSelectParams& params);

}  // namespace deepinfer::ops
