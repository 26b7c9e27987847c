#include "engine/scoring.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "model/forward.h"

namespace deepinfer::engine {

ScoreJob::ScoreJob(std::vector<int32_t> tokens, bool want_logits, int64_t vocab_size)
    : tokens_(std::move(tokens)), vocab_size_(vocab_size) {
  result_.logprobs.resize(tokens_.size() - 1);
  if (want_logits) result_.logits.resize(tokens_.size() * static_cast<size_t>(vocab_size));
}

RowRequest ScoreJob::row(int64_t index) const {
  RowRequest request;
  const auto next = static_cast<size_t>(index + 1);
  if (next < tokens_.size()) request.sample.forced_token = tokens_[next];
  return request;
}

bool ScoreJob::accept(int64_t first, std::span<const float> logprobs, const TensorView& logits) {
  for (size_t i = 0; i < logprobs.size(); ++i) {
    const size_t index = static_cast<size_t>(first) + i;
    if (index < result_.logprobs.size()) result_.logprobs[index] = logprobs[i];
  }
  if (wants_logits()) {
    std::copy_n(logits.as<const float>(), logits.shape().num_elements(),
                result_.logits.begin() + first * vocab_size_);
  }
  const bool done = static_cast<size_t>(first) + logprobs.size() == tokens_.size();
  if (done) promise_.set_value(std::move(result_));
  return done;
}

std::vector<TraceTensor> trace_sequence(const checkpoint::Checkpoint& checkpoint,
                                        ops::Backend& backend, std::span<const int32_t> token_map,
                                        std::shared_ptr<const model::ModelWeights> weights,
                                        std::span<const int32_t> tokens) {
  const auto count = static_cast<int64_t>(tokens.size());
  if (count > kMaxTraceTokens) {
    fail(ErrorCode::kResourceExhausted, "a trace of {} tokens was asked for, at most {} are kept",
         count, kMaxTraceTokens);
  }
  const checkpoint::ModelConfig& config = checkpoint.config();
  const ops::AllocationScope scope(backend);
  model::Model model(checkpoint, backend, token_map, {.max_rows = count, .max_logit_rows = count},
                     std::move(weights));
  cache::CacheShape shape = model::Model::cache_shape(config);
  shape.num_slots = 1;
  shape.max_slot_tokens = count;
  shape.num_pages = shape.max_slot_pages();
  cache::KvCache cache(backend, shape);
  for (int64_t page = 0; page < shape.num_pages; ++page) {
    cache.assign_page(0, page, static_cast<int32_t>(page));
  }

  std::vector<ops::PlanRow> rows;
  rows.reserve(tokens.size());
  for (int64_t i = 0; i < count; ++i) {
    rows.push_back({.slot = 0,
                    .offset = static_cast<int32_t>(i),
                    .token = tokens[static_cast<size_t>(i)],
                    .role = ops::RowRole::kPrefill});
  }
  const std::vector<int32_t> span_begin(rows.size(), 0);
  const std::vector<int32_t> span_size(rows.size(), static_cast<int32_t>(count));
  std::vector<int32_t> span_rows(rows.size());
  std::iota(span_rows.begin(), span_rows.end(), 0);
  const std::vector<int64_t> rows_at_layer(static_cast<size_t>(config.num_layers), count);
  model::Trace trace(backend);
  trace.add("rows", TensorView(span_rows.data(), DType::kI32, {count}));
  model.forward({.rows = rows,
                 .span_begin = span_begin,
                 .span_size = span_size,
                 .span_rows = span_rows,
                 .rows_at_layer = rows_at_layer,
                 .num_logit_rows = count},
                cache, &trace);

  std::vector<TraceTensor> result;
  for (model::TracedTensor& tensor : trace.take()) {
    result.push_back({.name = std::move(tensor.name),
                      .dtype = std::string(to_string(tensor.dtype)),
                      .shape = std::move(tensor.shape),
                      .data = std::move(tensor.data)});
  }
  return result;
}

}  // namespace deepinfer::engine
