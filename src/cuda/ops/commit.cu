#include "cuda/device/rows.cuh"
#include "cuda/error.h"
#include "cuda/ops/ops.h"

namespace deepinfer::cuda {
namespace {

constexpr int kThreads = 32;

/// One thread per entry; entries are of different slots.
struct CommitArgs {
  const ops::CommitEntry* entries;
  int32_t num_entries;
  RowsView rows;
  int64_t num_rows;
  const int32_t* row_token;    // [B]
  const int32_t* row_context;  // [B, ≥ look_back]
  int64_t context_stride;
  const int32_t* sampled;  // [n]; may be null
  int32_t* counts;         // [S, vocab]; may be null
  int64_t counts_stride;
  int32_t vocab;
  int64_t* committed;   // [S]
  int32_t* last_token;  // [S]
  int32_t* history;     // [S, look_back]
  int64_t history_stride;
  int32_t look_back;
};

/// Adds one to the count of a token in the slot's output (bits 0 to 30; bit 31 is the prompt's).
__device__ void count_token(const CommitArgs& a, int32_t slot, int32_t token) {
  if (token >= 0 && token < a.vocab) ++a.counts[slot * a.counts_stride + token];
}

__global__ void commit_kernel(const CommitArgs a) {
  const int32_t i = static_cast<int32_t>(blockIdx.x * kThreads + threadIdx.x);
  if (i >= a.num_entries) return;
  const ops::CommitEntry entry = a.entries[i];
  const int64_t last = a.rows.position[entry.last_row];
  if (a.counts != nullptr) {
    // The accepted drafts: the verified rows after the slot's last token, which was counted when it
    // was drawn.
    for (int64_t t = a.committed[entry.slot] + 1; t <= last; ++t) {
      const int32_t row = row_at(a.rows, entry.last_row, t, a.num_rows);
      if (row >= 0 && a.rows.role[row] == static_cast<uint8_t>(ops::RowRole::kVerify)) {
        count_token(a, entry.slot, a.row_token[row]);
      }
    }
    if (entry.sample_row >= 0) count_token(a, entry.slot, a.sampled[entry.sample_row]);
  }
  a.committed[entry.slot] = last + 1;
  for (int32_t k = 0; k < a.look_back; ++k) {
    a.history[entry.slot * a.history_stride + k] =
        a.row_context[entry.last_row * a.context_stride + k];
  }
  if (entry.sample_row >= 0) a.last_token[entry.slot] = a.sampled[entry.sample_row];
}

}  // namespace

void commit(const ops::CommitParams& p, Context& context) {
  if (p.entries.empty()) return;
  const auto entries = static_cast<int32_t>(p.entries.size());
  const bool counts = !p.counts.empty();
  const CommitArgs args{.entries = context.staging->upload(p.entries, context.stream),
                        .num_entries = entries,
                        .rows = view_of(p.rows),
                        .num_rows = p.rows.position.dim(0),
                        .row_token = p.rows.token.as<const int32_t>(),
                        .row_context = p.rows.context.as<const int32_t>(),
                        .context_stride = p.rows.context.stride(0),
                        .sampled = p.token.empty() ? nullptr : p.token.as<const int32_t>(),
                        .counts = counts ? p.counts.as<int32_t>() : nullptr,
                        .counts_stride = counts ? p.counts.stride(0) : 0,
                        .vocab = counts ? static_cast<int32_t>(p.counts.dim(1)) : 0,
                        .committed = p.slots.committed.as<int64_t>(),
                        .last_token = p.slots.last_token.as<int32_t>(),
                        .history = p.slots.history.as<int32_t>(),
                        .history_stride = p.slots.history.stride(0),
                        .look_back = static_cast<int32_t>(p.slots.history.dim(1))};
  commit_kernel<<<(entries + kThreads - 1) / kThreads, kThreads, 0, context.stream>>>(args);
  DEEPINFER_CUDA_LAUNCHED("commit");
}

}  // namespace deepinfer::cuda
