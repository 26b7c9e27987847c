#pragma once

#include <cstdint>
#include <vector>

#include "ops/plan_row.h"

namespace deepinfer::scheduler {

using RequestId = uint64_t;

/// A page that joined a slot: tokens [page·page_tokens, …) of the slot now live in `page_id`.
struct PageAssignment {
  int32_t slot;
  int64_t page;
  int32_t page_id;
};

/// A request's part of a step.
struct PlanSpan {
  RequestId request;
  int32_t slot;
  int64_t first_token;  // index of its first row's token in the request's sequence
  int64_t num_tokens;   // rows
  int32_t last_row;     // batch row of its last token
  bool samples;         // its last row is the newest known token: a new one is drawn from it
};

/// What one step computes, without a position or a tensor (design.md, "The BatchPlan is symbolic
/// and ragged"). Rows whose logits are wanted come first, then by depth, deepest first.
struct BatchPlan {
  std::vector<int32_t> reset_slots;   // slots that begin another request: forget everything first
  std::vector<PageAssignment> pages;  // then tell the slots their new pages
  std::vector<PlanSpan> spans;
  std::vector<ops::PlanRow> rows;      // [B]
  std::vector<int32_t> span_begin;     // [B] see ops::RowBatch
  std::vector<int32_t> span_size;      // [B]
  std::vector<int32_t> span_rows;      // [B]
  std::vector<int64_t> rows_at_layer;  // [L]
  int64_t num_logit_rows = 0;

  bool empty() const { return rows.empty(); }
  /// The part of the plan that concerns one span, as a plan of its own.
  BatchPlan only(const PlanSpan& span) const;
};

}  // namespace deepinfer::scheduler
