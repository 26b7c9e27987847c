#include <algorithm>

#include "scheduler/scheduler.h"
#include "scheduler/state.h"

namespace deepinfer::scheduler {

/// Sorts the rows of the spans into the batch: rows with logits, then deepest first (design.md,
/// "Depth per row"); span after span among equals.
void Scheduler::lay_out(BatchPlan& plan) {
  const int64_t layers = rules_.num_layers;
  const auto bucket_of = [&](const PlanSpan& span, const State& state, int64_t i) {
    if (i >= span.num_tokens - span.num_logits) return int64_t{0};
    const int64_t depth = span.generates ? layers : state.restart.depth(span.first_token + i);
    return 1 + layers - depth;
  };
  row_place_.clear();
  row_buckets_.assign(static_cast<size_t>(layers + 3), 0);
  for (const PlanSpan& span : plan.spans) {
    const State& state = *states_[static_cast<size_t>(span.handle)];
    for (int64_t i = 0; i < span.num_tokens; ++i) {
      const int64_t bucket = bucket_of(span, state, i);
      row_place_.push_back(static_cast<int32_t>(bucket));
      ++row_buckets_[static_cast<size_t>(bucket + 1)];
    }
  }
  for (size_t b = 1; b < row_buckets_.size(); ++b) row_buckets_[b] += row_buckets_[b - 1];
  plan.num_logit_rows = row_buckets_[1];
  // Layer l runs the rows of depth l+1 and more: buckets 0 … L-l.
  for (int64_t l = 0; l < layers; ++l) {
    plan.rows_at_layer.push_back(row_buckets_[static_cast<size_t>(layers - l + 1)]);
  }

  const size_t total = row_place_.size();
  plan.rows.resize(total);
  plan.span_begin.resize(total);
  plan.span_size.resize(total);
  plan.span_rows.resize(total);
  size_t k = 0;
  for (PlanSpan& span : plan.spans) {
    const State& state = *states_[static_cast<size_t>(span.handle)];
    const auto begin = static_cast<int32_t>(k);
    for (int64_t i = 0; i < span.num_tokens; ++i, ++k) {
      const auto row = static_cast<size_t>(row_buckets_[static_cast<size_t>(row_place_[k])]++);
      ops::PlanRow& out = plan.rows[row];
      out.slot = span.slot;
      out.offset = static_cast<int32_t>(i);
      if (span.generates) {
        out.token = -1;
        out.role = span.num_tokens > 1 ? ops::RowRole::kVerify : ops::RowRole::kDecode;
      } else {
        out.token = state.tokens[static_cast<size_t>(span.first_token + i)];
        out.role = i < span.num_replayed ? ops::RowRole::kReplay : ops::RowRole::kPrefill;
      }
      plan.span_begin[row] = begin;
      plan.span_size[row] = static_cast<int32_t>(span.num_tokens);
      plan.span_rows[k] = static_cast<int32_t>(row);
      if (i == span.num_tokens - span.num_logits) span.first_logit = static_cast<int32_t>(row);
      if (i == span.num_tokens - 1) span.last_row = static_cast<int32_t>(row);
    }
  }
}

}  // namespace deepinfer::scheduler
