#include "ops/commit.h"

#include "ops/check.h"

namespace deepinfer::ops {

void check(const CommitParams& p) {
  check_rank("commit", "position", p.rows.position, 1);
  check_rank("commit", "committed", p.slots.committed, 1);
  check_rank("commit", "history", p.slots.history, 2);
  check_rank("commit", "context", p.rows.context, 2);
  const int64_t batch = p.rows.position.dim(0);
  const int64_t num_slots = p.slots.committed.dim(0);
  const int64_t history = p.slots.history.dim(1);
  check_rows("commit", p.rows, batch);
  check_operand("commit", "row token", p.rows.token, {batch}, DType::kI32);
  check_operand("commit", "context", p.rows.context, {batch, p.rows.context.dim(1)}, DType::kI32);
  check_operand("commit", "committed", p.slots.committed, {num_slots}, DType::kI64);
  check_operand("commit", "last_token", p.slots.last_token, {num_slots}, DType::kI32);
  check_operand("commit", "history", p.slots.history, {num_slots, history}, DType::kI32);
  DEEPINFER_CHECK(p.rows.context.dim(1) >= history,
                  "commit: contexts of {} tokens, expected at least the history's {}",
                  p.rows.context.dim(1), history);
  int64_t num_sampled = 0;
  if (!p.token.empty()) {
    check_rank("commit", "token", p.token, 1);
    num_sampled = p.token.dim(0);
    check_operand("commit", "token", p.token, {num_sampled}, DType::kI32);
  }
  if (!p.counts.empty()) {
    check_rank("commit", "counts", p.counts, 2);
    check_operand("commit", "counts", p.counts, {num_slots, p.counts.dim(1)}, DType::kI32);
  }
  for (const CommitEntry& entry : p.entries) {
    DEEPINFER_CHECK(entry.slot >= 0 && entry.slot < num_slots && entry.last_row >= 0 &&
                        entry.last_row < batch && entry.sample_row < num_sampled,
                    "commit: slot {} of {}, last row {} of {}, sampled row {} of {}", entry.slot,
                    num_slots, entry.last_row, batch, entry.sample_row, num_sampled);
  }
}

}  // namespace deepinfer::ops
