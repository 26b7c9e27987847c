#include "ops/resolve_rows.h"

#include "ops/check.h"

namespace deepinfer::ops {
namespace {

/// Every row stands in its slot's span at the place that its offset says.
void check_spans(const ResolveRowsParams& p) {
  const auto batch = static_cast<int64_t>(p.plan.size());
  const int64_t num_slots = p.slots.committed.dim(0);
  for (size_t b = 0; b < p.plan.size(); ++b) {
    const PlanRow& row = p.plan[b];
    DEEPINFER_CHECK(row.slot >= 0 && row.slot < num_slots,
                    "resolve_rows: row {} is of slot {} of {}", b, row.slot, num_slots);
    const int64_t begin = p.span_begin[b];
    const int64_t size = p.span_size[b];
    DEEPINFER_CHECK(begin >= 0 && size >= 1 && begin + size <= batch,
                    "resolve_rows: the span of row {} is {} rows from {} of {}", b, size, begin,
                    batch);
    const int64_t first = p.span_rows[static_cast<size_t>(begin)];
    DEEPINFER_CHECK(first >= 0 && first < batch, "resolve_rows: the span of row {} starts with {}",
                    b, first);
    const int64_t place = int64_t{row.offset} - p.plan[static_cast<size_t>(first)].offset;
    DEEPINFER_CHECK(place >= 0 && place < size &&
                        p.span_rows[static_cast<size_t>(begin + place)] == static_cast<int64_t>(b),
                    "resolve_rows: row {} of slot {}, offset {}, is not at its place in the span",
                    b, row.slot, row.offset);
    const bool is_draft = row.role == RowRole::kVerify && row.offset > 0;
    DEEPINFER_CHECK(!is_draft || (!p.slots.drafts.empty() && row.offset <= p.slots.drafts.dim(1)),
                    "resolve_rows: row {} is draft number {}, more than there is room for", b,
                    row.offset - 1);
  }
}

}  // namespace

void check(const ResolveRowsParams& p) {
  const auto batch = static_cast<int64_t>(p.plan.size());
  DEEPINFER_CHECK(p.span_begin.size() == p.plan.size() && p.span_size.size() == p.plan.size() &&
                      p.span_rows.size() == p.plan.size(),
                  "resolve_rows: spans of {}, {} and {} rows for a plan of {}", p.span_begin.size(),
                  p.span_size.size(), p.span_rows.size(), p.plan.size());
  check_rank("resolve_rows", "committed", p.slots.committed, 1);
  check_rank("resolve_rows", "history", p.slots.history, 2);
  check_rank("resolve_rows", "context", p.out.context, 2);
  const int64_t num_slots = p.slots.committed.dim(0);
  check_operand("resolve_rows", "committed", p.slots.committed, {num_slots}, DType::kI64);
  check_operand("resolve_rows", "last_token", p.slots.last_token, {num_slots}, DType::kI32);
  check_operand("resolve_rows", "history", p.slots.history, {num_slots, p.slots.history.dim(1)},
                DType::kI32);
  if (!p.slots.drafts.empty()) {
    check_rank("resolve_rows", "drafts", p.slots.drafts, 2);
    check_operand("resolve_rows", "drafts", p.slots.drafts, {num_slots, p.slots.drafts.dim(1)},
                  DType::kI32);
  }
  check_rows("resolve_rows", p.out, batch);
  check_operand("resolve_rows", "position", p.out.position, {batch}, DType::kI64);
  check_operand("resolve_rows", "token", p.out.token, {batch}, DType::kI32);
  check_operand("resolve_rows", "context", p.out.context, {batch, p.out.context.dim(1)},
                DType::kI32);
  check_spans(p);
}

}  // namespace deepinfer::ops
