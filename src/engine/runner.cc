#include "engine/runner.h"

#include <algorithm>

#include "sampling/sample_row.h"

namespace deepinfer::engine {
namespace {

/// Copies `from` into the front of a host tensor of `capacity` elements, made when first needed.
void copy_out(ops::Backend& backend, const TensorView& from, int64_t capacity, Tensor& to) {
  if (to.view().empty()) to = backend.allocate_host(from.dtype(), {capacity});
  backend.copy(from, to.view().slice(0, from.shape().num_elements()));
}

}  // namespace

Runner::Runner(const checkpoint::Checkpoint& checkpoint, ops::Backend& backend,
               std::span<const int32_t> token_map, const model::StepLimits& limits,
               const cache::CacheShape& shape, std::shared_ptr<const model::ModelWeights> weights)
    : backend_(backend),
      model_(checkpoint, backend, token_map, limits, std::move(weights)),
      cache_(backend, shape) {
  const int64_t rows = limits.max_logit_rows;
  constexpr int64_t kTop = SamplingParams::kMaxLogprobs;
  counts_ = backend.allocate(DType::kI32, {shape.num_slots, checkpoint.config().vocab_size});
  token_ = backend.allocate(DType::kI32, {rows});
  logprob_ = backend.allocate(DType::kF32, {rows});
  top_tokens_ = backend.allocate(DType::kI32, {rows * kTop});
  top_logprobs_ = backend.allocate(DType::kF32, {rows * kTop});
}

void Runner::begin_slots(Step& step) {
  const scheduler::BatchPlan& plan = step.plan;
  // The plan has as many tokens before every start as a slot remembers.
  const size_t remembered = plan.starts.empty() ? 0 : plan.history.size() / plan.starts.size();
  for (size_t i = 0; i < plan.starts.size(); ++i) {
    const scheduler::SlotStart& start = plan.starts[i];
    const size_t known = std::min(remembered, static_cast<size_t>(start.position));
    cache::SlotStart begin{
        .position = start.position,
        .tokens = std::span(plan.history).subspan((i + 1) * remembered - known, known),
        .rings = {}};
    if (start.encoder_unit >= 0) {
      begin.rings = cache::SnapshotUnits{.encoder = start.encoder_unit,
                                         .decoder = start.decoder_unit,
                                         .decoder_floor = start.decoder_floor};
    }
    cache_.reset_slot(start.slot, begin);
  }
  step.operands.counts.resize(step.seen.size());
  for (size_t i = 0; i < step.seen.size(); ++i) set_seen(step.seen[i], step.operands.counts[i]);
  for (const scheduler::PageAssignment& page : plan.pages) {
    cache_.assign_page(page.slot, page.page, page.page_id);
  }
}

void Runner::set_seen(const SeenTokens& seen, Tensor& counts) {
  counts = Tensor(DType::kI32, {counts_.shape()[1]});
  auto* count = counts.as<int32_t>();
  constexpr auto kInPrompt = static_cast<int32_t>(0x80000000);
  for (const int32_t token : seen.output) ++count[token];
  for (const int32_t token : seen.prompt) count[token] |= kInPrompt;
  backend_.copy(counts, counts_.view().at(seen.slot));
}

void Runner::launch(Step& step) {
  const scheduler::BatchPlan& plan = step.plan;
  if (step.transfers != nullptr) step.transfers->run(cache_);
  begin_slots(step);
  if (!plan.rows.empty()) run_rows(step);
  for (const scheduler::SnapshotSave& save : plan.saves) {
    cache_.save_rings(save.slot, {.encoder = save.encoder_unit, .decoder = save.decoder_unit});
  }
  step.mark = backend_.record();
}

void Runner::run_rows(Step& step) {
  const scheduler::BatchPlan& plan = step.plan;
  model_.forward({.rows = plan.rows,
                  .span_begin = plan.span_begin,
                  .span_size = plan.span_size,
                  .span_rows = plan.span_rows,
                  .rows_at_layer = plan.rows_at_layer,
                  .num_logit_rows = plan.num_logit_rows},
                 cache_);
  step.num_top = 0;
  for (const RowRequest& row : step.rows)
    step.num_top = std::max<int64_t>(step.num_top, row.num_top);
  if (!step.rows.empty()) sample(step);
  commit(step);
  if (!step.rows.empty()) copy_results(step);
}

void Runner::copy_results(Step& step) {
  const auto n = static_cast<int64_t>(step.rows.size());
  const int64_t rows = model_.limits().max_logit_rows;
  copy_out(backend_, token_.view().slice(0, n), rows, step.token);
  copy_out(backend_, logprob_.view().slice(0, n), rows, step.logprob);
  if (step.num_top > 0) {
    const int64_t top = rows * SamplingParams::kMaxLogprobs;
    copy_out(backend_, top_tokens_.view().slice(0, n * step.num_top), top, step.top_tokens);
    copy_out(backend_, top_logprobs_.view().slice(0, n * step.num_top), top, step.top_logprobs);
  }
  if (step.wants_logits) {
    const TensorView logits = model_.logits();
    step.logits = Tensor(DType::kF32, logits.shape());
    backend_.copy(logits, step.logits);
  }
}

TensorView Runner::bias_of(Step& step) {
  const auto is_biased = [](const RowRequest& row) { return row.biased != nullptr; };
  if (std::ranges::none_of(step.rows, is_biased)) return {};
  const auto n = static_cast<int64_t>(step.rows.size());
  const int64_t vocab = counts_.shape()[1];
  Tensor& host = step.operands.bias;
  host = Tensor(DType::kF32, {n, vocab});
  for (int64_t i = 0; i < n; ++i) {
    const RowRequest& row = step.rows[static_cast<size_t>(i)];
    if (!is_biased(row)) continue;
    sampling::fill_bias(*row.biased, row.num_generated,
                        {host.view().row<float>(i), static_cast<size_t>(vocab)});
  }
  if (bias_.view().empty()) {
    bias_ = backend_.allocate(DType::kF32, {model_.limits().max_logit_rows, vocab});
  }
  const TensorView bias = bias_.view().slice(0, n);
  backend_.copy(host, bias);
  return bias;
}

void Runner::sample(Step& step) {
  const auto n = static_cast<int64_t>(step.rows.size());
  const int64_t top = step.num_top;
  std::vector<ops::SampleRow>& rows = step.operands.sample_rows;
  rows.clear();
  for (const RowRequest& row : step.rows) rows.push_back(row.sample);
  ops::SampleParams params{.logits = model_.logits(),
                           .rows = rows,
                           .slot = model_.rows().slot.slice(0, n),
                           .position = model_.rows().position.slice(0, n),
                           .counts = counts_,
                           .bias = bias_of(step),
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

void Runner::commit(Step& step) {
  std::vector<ops::CommitEntry>& entries = step.operands.entries;
  entries.clear();
  for (const scheduler::PlanSpan& span : step.plan.spans) {
    entries.push_back({.slot = span.slot,
                       .last_row = span.last_row,
                       .sample_row = span.samples ? span.first_logit : -1});
  }
  backend_.commit({.entries = entries,
                   .rows = model_.rows(),
                   .token = token_.view().slice(0, step.plan.num_logit_rows),
                   .counts = counts_,
                   .slots = cache_.slots()});
}

}  // namespace deepinfer::engine
