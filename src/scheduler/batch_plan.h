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

/// A slot that begins another request: everything of it is forgotten first.
struct SlotStart {
  RequestId request;
  int32_t slot;
  int64_t position;       // tokens before it count as committed
  int32_t encoder_unit;   // rings to load (cache::SnapshotPool); -1: none
  int32_t decoder_unit;   // rings above the last KV source; -1: they stay empty
  int64_t decoder_floor;  // bounded replay: those begin at this position
};

/// Rings to keep: those of the slot as they are after the step, when `num_tokens` of it count.
struct SnapshotSave {
  int32_t slot;
  int64_t num_tokens;
  int32_t encoder_unit;
  int32_t decoder_unit;  // -1: rings above the last KV source are not kept
};

/// A request's part of a step.
struct PlanSpan {
  RequestId request;
  int32_t handle;  // the scheduler's own name for the request
  int32_t slot;
  int64_t first_token;   // index of its first row's token in the sequence, or the most that may be
  int64_t num_tokens;    // rows
  int64_t num_logits;    // its last rows whose logits are wanted
  int32_t first_logit;   // batch row of the first of them; -1 without
  int32_t last_row;      // batch row of its last token
  bool samples;          // tokens are drawn from its logit rows (else they are scored)
  bool generates;        // its rows are drawn tokens that only the device knows
  int64_t num_replayed;  // rows that write no page
};

/// What one step computes, without a position or a tensor (design.md, "The BatchPlan is symbolic
/// and ragged"). Rows whose logits are wanted come first, then by depth, deepest first. Kept and
/// filled again step after step, so that planning allocates nothing.
struct BatchPlan {
  std::vector<SlotStart> starts;       // in this order: first slots begin,
  std::vector<PageAssignment> pages;   // then they get pages,
  std::vector<PlanSpan> spans;         // then the rows run and are committed,
  std::vector<SnapshotSave> saves;     // and last rings are kept
  std::vector<ops::PlanRow> rows;      // [B]
  std::vector<int32_t> span_begin;     // [B] see ops::RowBatch
  std::vector<int32_t> span_size;      // [B]
  std::vector<int32_t> span_rows;      // [B]
  std::vector<int64_t> rows_at_layer;  // [L]
  std::vector<int32_t>
      history;  // [starts, N-1] tokens before SlotStart::position; -1 before the first
  int64_t num_logit_rows = 0;

  bool empty() const { return rows.empty() && starts.empty(); }
  void clear();
};

}  // namespace deepinfer::scheduler
