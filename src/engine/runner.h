#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "cache/kv_cache.h"
#include "deepinfer/engine.h"
#include "model/forward.h"
#include "scheduler/batch_plan.h"

namespace deepinfer::engine {

/// What a logit row of a step needs to be sampled.
struct RowRequest {
  ops::SampleRow sample;
  int32_t num_top = 0;  // most likely tokens to report
  const SamplingParams* biased =
      nullptr;  // set if the row's logits are biased (sampling::fill_bias)
  int64_t num_generated = 0;
};

/// Carries out plans on one backend: page tables, forward pass, sampling, commit. Owned by the
/// engine thread.
class Runner {
 public:
  Runner(const checkpoint::Checkpoint& checkpoint, ops::Backend& backend,
         std::span<const int32_t> token_map, const model::StepLimits& limits,
         const cache::CacheShape& shape);

  /// Forgets a slot and tells the sampler what the request's sequence holds already (for
  /// penalties).
  void reset_slot(int32_t slot, std::span<const int32_t> prompt, std::span<const int32_t> output);
  /// Runs a step whose slots have been reset; `rows` describes its logit rows. Returns one token
  /// per logit row.
  std::vector<GeneratedToken> run(const scheduler::BatchPlan& plan,
                                  std::span<const RowRequest> rows);
  /// Logits of the last step, on the host: [num_logit_rows, V] f32.
  TensorView logits();

 private:
  void forward(const scheduler::BatchPlan& plan);
  void sample(std::span<const RowRequest> rows);
  TensorView bias_of(std::span<const RowRequest> rows);
  void commit(const scheduler::BatchPlan& plan);

  ops::Backend& backend_;
  model::Model model_;
  cache::KvCache cache_;
  Tensor counts_;                                       // [S, V] i32, see ops::SampleParams
  Tensor token_, logprob_, top_tokens_, top_logprobs_;  // of the logit rows, on the backend
  Tensor bias_;  // [max_logit_rows, V] f32; made when first needed
  Tensor host_token_, host_logprob_, host_top_tokens_, host_top_logprobs_, host_logits_;
};

}  // namespace deepinfer::engine
