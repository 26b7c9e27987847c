#include <algorithm>

#include "ops/reference/reference.h"
#include "ops/reference/rows.h"

namespace deepinfer::ops::reference {
namespace {

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

void commit(const Context& /*context*/, const CommitParams& p) {
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

}  // namespace deepinfer::ops::reference
