#include "ops/host_rows.h"

#include <algorithm>

#include "base/error.h"
#include "ops/addresses.h"

namespace deepinfer::ops {
namespace {

int32_t token_of(const SlotState& slots, const PlanRow& row) {
  if (row.role == RowRole::kPrefill || row.role == RowRole::kReplay) return row.token;
  if (row.role == RowRole::kVerify && row.offset > 0) {
    return slots.drafts.row<const int32_t>(row.slot)[row.offset - 1];
  }
  return slots.last_token.as<const int32_t>()[row.slot];
}

/// The token at `position` of row b's slot: of this step, or else remembered by the slot; -1 where
/// neither knows one.
int32_t token_at(const ResolveRowsParams& p, int64_t b, int64_t position) {
  if (position < 0) return -1;
  const auto batch = static_cast<int64_t>(p.plan.size());
  if (const std::optional<int64_t> row = row_at(p.out, b, position, batch)) {
    return p.out.token.as<const int32_t>()[*row];
  }
  const int32_t slot = p.plan[static_cast<size_t>(b)].slot;
  const int64_t back = p.slots.committed.as<const int64_t>()[slot] - 1 - position;
  if (back < 0 || back >= p.slots.history.dim(1)) return -1;
  return p.slots.history.row<const int32_t>(slot)[back];
}

/// Adds one to the count of a token in the slot's output (bits 0 to 30; bit 31 is the prompt's).
void count_token(const CommitParams& p, int32_t slot, int32_t token) {
  DEEPINFER_CHECK(token >= 0 && token < p.counts.dim(1), "commit: token {} of a vocabulary of {}",
                  token, p.counts.dim(1));
  ++p.counts.row<int32_t>(slot)[token];
}

/// Counts what this step adds to the output: the accepted drafts (the verified rows after the
/// slot's last token, which was counted when it was drawn) and the token drawn now.
void count_output(const CommitParams& p, const CommitEntry& entry) {
  const auto* role = p.rows.role.as<const uint8_t>();
  const auto* token = p.rows.token.as<const int32_t>();
  const int64_t last = p.rows.position.as<const int64_t>()[entry.last_row];
  const int64_t batch = p.rows.position.dim(0);
  for (int64_t t = p.slots.committed.as<const int64_t>()[entry.slot] + 1; t <= last; ++t) {
    const std::optional<int64_t> row = row_at(p.rows, entry.last_row, t, batch);
    if (row && role[*row] == static_cast<uint8_t>(RowRole::kVerify)) {
      count_token(p, entry.slot, token[*row]);
    }
  }
  if (entry.sample_row >= 0) {
    count_token(p, entry.slot, p.token.as<const int32_t>()[entry.sample_row]);
  }
}

}  // namespace

void resolve_rows_on_host(const ResolveRowsParams& p) {
  std::ranges::copy(p.span_begin, p.out.span_begin.as<int32_t>());
  std::ranges::copy(p.span_size, p.out.span_size.as<int32_t>());
  std::ranges::copy(p.span_rows, p.out.span_rows.as<int32_t>());
  const auto* committed = p.slots.committed.as<const int64_t>();
  for (size_t b = 0; b < p.plan.size(); ++b) {
    const PlanRow& row = p.plan[b];
    const int32_t first = p.span_rows[static_cast<size_t>(p.span_begin[b])];
    p.out.slot.as<int32_t>()[b] = row.slot;
    p.out.role.as<uint8_t>()[b] = static_cast<uint8_t>(row.role);
    p.out.position.as<int64_t>()[b] = committed[row.slot] + row.offset;
    p.out.span_first.as<int64_t>()[b] =
        committed[row.slot] + p.plan[static_cast<size_t>(first)].offset;
    p.out.token.as<int32_t>()[b] = token_of(p.slots, row);
  }
  // A second pass: contexts read the tokens of other rows.
  for (int64_t b = 0; b < static_cast<int64_t>(p.plan.size()); ++b) {
    const int64_t position = p.out.position.as<const int64_t>()[b];
    auto* context = p.out.context.row<int32_t>(b);
    for (int64_t i = 0; i < p.out.context.dim(1); ++i) context[i] = token_at(p, b, position - i);
  }
}

void commit_on_host(const CommitParams& p) {
  for (const CommitEntry& entry : p.entries) {
    if (!p.counts.empty()) count_output(p, entry);
    p.slots.committed.as<int64_t>()[entry.slot] =
        p.rows.position.as<const int64_t>()[entry.last_row] + 1;
    std::copy_n(p.rows.context.row<const int32_t>(entry.last_row), p.slots.history.dim(1),
                p.slots.history.row<int32_t>(entry.slot));
    if (entry.sample_row >= 0) {
      p.slots.last_token.as<int32_t>()[entry.slot] = p.token.as<const int32_t>()[entry.sample_row];
    }
  }
}

}  // namespace deepinfer::ops
