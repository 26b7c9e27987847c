// How a step begins and ends: its rows, its tokens, its slots.

#include <fmt/format.h>

#include "bench/cuda/harness.h"
#include "bench/cuda/step.h"
#include "cuda/ops/ops.h"

namespace deepinfer::bench {
namespace {

/// Bytes: what is written for the rows. The time has the upload of the plan in it.
void resolve_rows(Harness& h) {
  if (!h.wants("resolve_rows")) return;
  const MemoryScope scope(h);
  constexpr int64_t kFirst = 4096;
  const Caches caches(h, {.slots = kMaxDecodeRows, .committed = kFirst});
  for (const int64_t rows : kRowCounts) {
    const MemoryScope of_rows(h);
    const StepRows step(h, rows, 0, kFirst);
    const auto span_of = [&](const TensorView& view) {
      return std::span<const int32_t>(view.as<const int32_t>(), static_cast<size_t>(rows));
    };
    const auto make = [&](int64_t) -> ops::ResolveRowsParams {
      return {.plan = step.plan(),
              .span_begin = span_of(step.host().span_begin),
              .span_size = span_of(step.host().span_size),
              .span_rows = span_of(step.host().span_rows),
              .slots = caches.slots,
              .out = step.device()};
    };
    h.measure<ops::ResolveRowsParams>("resolve_rows", rows, make, cuda::resolve_rows,
                                      {.max_sets = 16});
  }
}

struct Sampling {
  const char* name;
  ops::SampleRow row;
  int64_t num_top;  // log-probabilities reported
};

/// Bytes: the logits once; a sampler that makes several passes over them reads them from L2. The
/// logits are about normal with a deviation of 3, so a nucleus keeps thousands of tokens.
void sample(Harness& h, const Sampling& sampling) {
  if (!h.wants(sampling.name)) return;
  const MemoryScope scope(h);
  const int64_t vocab = h.config().vocab_size;
  constexpr int64_t kRows = 2 * kMaxDecodeRows;
  const TensorView logits = h.normal({kRows, vocab}, 3);
  const TensorView token = h.zeros(DType::kI32, {kRows});
  const TensorView logprob = h.zeros(DType::kF32, {kRows});
  const TensorView top_tokens =
      sampling.num_top > 0 ? h.zeros(DType::kI32, {kRows, sampling.num_top}) : TensorView();
  const TensorView top_logprobs =
      sampling.num_top > 0 ? h.zeros(DType::kF32, {kRows, sampling.num_top}) : TensorView();
  for (const int64_t rows : {int64_t{1}, int64_t{16}, kMaxDecodeRows}) {
    const MemoryScope of_rows(h);
    const StepRows step(h, rows, 0, 1000);
    const std::vector<ops::SampleRow> params(static_cast<size_t>(rows), sampling.row);
    const auto make = [&](int64_t set) {
      ops::SampleParams p;
      p.logits = in_turn(logits, set, rows);
      p.rows = params;
      p.slot = step.device().slot;
      p.position = step.device().position;
      p.token = in_turn(token, set, rows);
      p.logprob = in_turn(logprob, set, rows);
      if (sampling.num_top > 0) {
        p.top_tokens = in_turn(top_tokens, set, rows);
        p.top_logprobs = in_turn(top_logprobs, set, rows);
      }
      return p;
    };
    h.measure<ops::SampleParams>(sampling.name, rows, make, cuda::sample);
  }
}

/// Bytes: the entries. Every slot ends its step with a token that is counted.
void commit(Harness& h) {
  if (!h.wants("commit")) return;
  const MemoryScope scope(h);
  constexpr int64_t kFirst = 4096;
  const Caches caches(h, {.slots = kMaxDecodeRows, .committed = kFirst});
  const TensorView token = h.zeros(DType::kI32, {kMaxDecodeRows});
  const TensorView counts = h.zeros(DType::kI32, {kMaxDecodeRows, h.config().vocab_size});
  for (const int64_t rows : {int64_t{1}, int64_t{16}, int64_t{64}, kMaxDecodeRows}) {
    const MemoryScope of_rows(h);
    const StepRows step(h, rows, 0, kFirst);
    std::vector<ops::CommitEntry> entries;
    entries.reserve(static_cast<size_t>(rows));
    for (int32_t i = 0; i < rows; ++i) {
      entries.push_back({.slot = i, .last_row = i, .sample_row = i});
    }
    const auto make = [&](int64_t) -> ops::CommitParams {
      return {.entries = entries,
              .rows = step.device(),
              .token = token.slice(0, rows),
              .counts = counts,
              .slots = caches.slots};
    };
    h.measure<ops::CommitParams>("commit", rows, make, cuda::commit);
  }
}

}  // namespace

void measure_step_ends(Harness& harness) {
  resolve_rows(harness);
  sample(harness, {.name = "sample, greedy", .row = {}, .num_top = 0});
  sample(harness, {.name = "sample, greedy, 20 logprobs", .row = {}, .num_top = 20});
  const ops::SampleRow nucleus{.seed = 7, .temperature = 0.8F, .top_p = 0.95F};
  sample(harness, {.name = "sample, top-p 0.95", .row = nucleus, .num_top = 0});
  ops::SampleRow both = nucleus;
  both.top_k = 50;
  sample(harness, {.name = "sample, top-k 50, top-p 0.95", .row = both, .num_top = 0});
  commit(harness);
}

}  // namespace deepinfer::bench
