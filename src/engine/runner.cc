#include "engine/runner.h"

#include <algorithm>

#include "sampling/sample_row.h"

namespace deepinfer::engine {
namespace {

/// How many most likely tokens the step reports per row: what the most curious row asks for.
int64_t most_top(std::span<const RowRequest> rows) {
  int64_t top = 0;
  for (const RowRequest& row : rows) top = std::max<int64_t>(top, row.num_top);
  return top;
}

}  // namespace

Runner::Runner(const checkpoint::Checkpoint& checkpoint, ops::Backend& backend,
               std::span<const int32_t> token_map, const model::StepLimits& limits,
               const cache::CacheShape& shape)
    : backend_(backend), model_(checkpoint, backend, token_map, limits), cache_(backend, shape) {
  const int64_t rows = limits.max_logit_rows;
  constexpr int64_t kTop = SamplingParams::kMaxLogprobs;
  counts_ = backend.allocate(DType::kI32, {shape.num_slots, checkpoint.config().vocab_size});
  token_ = backend.allocate(DType::kI32, {rows});
  logprob_ = backend.allocate(DType::kF32, {rows});
  top_tokens_ = backend.allocate(DType::kI32, {rows * kTop});
  top_logprobs_ = backend.allocate(DType::kF32, {rows * kTop});
  host_token_ = Tensor(DType::kI32, {rows});
  host_logprob_ = Tensor(DType::kF32, {rows});
  host_top_tokens_ = Tensor(DType::kI32, {rows * kTop});
  host_top_logprobs_ = Tensor(DType::kF32, {rows * kTop});
}

void Runner::reset_slot(int32_t slot, std::span<const int32_t> prompt,
                        std::span<const int32_t> output) {
  cache_.reset_slot(slot);
  const Tensor counts(DType::kI32, {counts_.shape()[1]});
  auto* count = counts.as<int32_t>();
  constexpr auto kInPrompt = static_cast<int32_t>(0x80000000);
  for (const int32_t token : output) ++count[token];
  for (const int32_t token : prompt) count[token] |= kInPrompt;
  backend_.copy(counts, counts_.view().at(slot));
}

std::vector<GeneratedToken> Runner::run(const scheduler::BatchPlan& plan,
                                        std::span<const RowRequest> rows) {
  for (const scheduler::PageAssignment& page : plan.pages) {
    cache_.assign_page(page.slot, page.page, page.page_id);
  }
  forward(plan);
  if (!rows.empty()) sample(rows);
  commit(plan);

  const auto n = static_cast<int64_t>(rows.size());
  const int64_t top = most_top(rows);
  backend_.copy(token_.view().slice(0, n), host_token_.view().slice(0, n));
  backend_.copy(logprob_.view().slice(0, n), host_logprob_.view().slice(0, n));
  backend_.copy(top_tokens_.view().slice(0, n * top), host_top_tokens_.view().slice(0, n * top));
  backend_.copy(top_logprobs_.view().slice(0, n * top),
                host_top_logprobs_.view().slice(0, n * top));
  backend_.synchronize();

  std::vector<GeneratedToken> tokens(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    tokens[i].id = host_token_.as<int32_t>()[i];
    tokens[i].logprob = host_logprob_.as<float>()[i];
    for (int32_t t = 0; t < rows[i].num_top; ++t) {
      const size_t at = i * static_cast<size_t>(top) + static_cast<size_t>(t);
      const int32_t token = host_top_tokens_.as<int32_t>()[at];
      if (token < 0) break;  // fewer tokens than were asked for
      tokens[i].top.push_back({.token = token, .logprob = host_top_logprobs_.as<float>()[at]});
    }
  }
  return tokens;
}

void Runner::forward(const scheduler::BatchPlan& plan) {
  model_.forward({.rows = plan.rows,
                  .span_begin = plan.span_begin,
                  .span_size = plan.span_size,
                  .span_rows = plan.span_rows,
                  .rows_at_layer = plan.rows_at_layer,
                  .num_logit_rows = plan.num_logit_rows},
                 cache_);
}

TensorView Runner::bias_of(std::span<const RowRequest> rows) {
  if (std::ranges::none_of(rows, [](const RowRequest& row) { return row.biased != nullptr; })) {
    return {};
  }
  const auto n = static_cast<int64_t>(rows.size());
  const int64_t vocab = counts_.shape()[1];
  const Tensor host(DType::kF32, {n, vocab});
  for (int64_t i = 0; i < n; ++i) {
    const RowRequest& row = rows[static_cast<size_t>(i)];
    if (row.biased == nullptr) continue;
    sampling::fill_bias(*row.biased, row.num_generated,
                        {host.view().row<float>(i), static_cast<size_t>(vocab)});
  }
  if (bias_.view().empty())
    bias_ = backend_.allocate(DType::kF32, {model_.limits().max_logit_rows, vocab});
  const TensorView bias = bias_.view().slice(0, n);
  backend_.copy(host, bias);
  return bias;
}

void Runner::sample(std::span<const RowRequest> rows) {
  const auto n = static_cast<int64_t>(rows.size());
  const int64_t top = most_top(rows);
  std::vector<ops::SampleRow> sample_rows;
  sample_rows.reserve(rows.size());
  for (const RowRequest& row : rows) sample_rows.push_back(row.sample);
  ops::SampleParams params{.logits = model_.logits(),
                           .rows = sample_rows,
                           .slot = model_.rows().slot.slice(0, n),
                           .position = model_.rows().position.slice(0, n),
                           .counts = counts_,
                           .bias = bias_of(rows),
                           .mask = {},
                           .token = token_.view().slice(0, n),
                           .logprob = logprob_.view().slice(0, n),
                           .top_tokens = {},
                           .top_logprobs = {}};
  if (top > 0) {
    params.top_tokens = top_tokens_.view().slice(0, n * top).reshape({n, top});
    params.top_logprobs = top_logprobs_.view().slice(0, n * top).reshape({n, top});
  }
  backend_.sample(params);
}

void Runner::commit(const scheduler::BatchPlan& plan) {
  std::vector<ops::CommitEntry> entries;
  entries.reserve(plan.spans.size());
  for (const scheduler::PlanSpan& span : plan.spans) {
    entries.push_back({.slot = span.slot,
                       .last_row = span.last_row,
                       .sample_row = span.samples ? span.last_row : -1});
  }
  backend_.commit({.entries = entries,
                   .rows = model_.rows(),
                   .token = token_.view().slice(0, plan.num_logit_rows),
                   .counts = counts_,
                   .slots = cache_.slots()});
}

TensorView Runner::logits() {
  const TensorView logits = model_.logits();
  host_logits_ = Tensor(DType::kF32, logits.shape());
  backend_.copy(logits, host_logits_);
  backend_.synchronize();
  return host_logits_.view();
}

}  // namespace deepinfer::engine
