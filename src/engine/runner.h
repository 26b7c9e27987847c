#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cache/kv_cache.h"
#include "deepinfer/engine.h"
#include "engine/step.h"
#include "model/forward.h"
#include "scheduler/batch_plan.h"

namespace deepinfer::engine {

/// Carries out steps on one backend: page tables, forward pass, sampling, commit. Owned by the
/// thread that calls launch().
class Runner {
 public:
  Runner(const checkpoint::Checkpoint& checkpoint, ops::Backend& backend,
         std::span<const int32_t> token_map, const model::StepLimits& limits,
         const cache::CacheShape& shape, std::shared_ptr<const model::ModelWeights> weights);

  const std::shared_ptr<const model::ModelWeights>& weights() const { return model_.weights(); }

  /// Enqueues a step and the copies of its results. Throws what an operation fails with; caches and
  /// slots of the step's requests are undefined then.
  void launch(Step& step);
  /// Whether a launched step has been computed, and waiting until it has.
  bool is_done(const Step& step) const { return backend_.is_done(step.mark); }
  void wait(const Step& step) { backend_.wait(step.mark); }

 private:
  void begin_slots(Step& step);
  void run_rows(Step& step);
  void set_seen(const SeenTokens& seen, Tensor& counts);
  void sample(Step& step);
  TensorView bias_of(Step& step);
  void commit(Step& step);
  void copy_results(Step& step);

  ops::Backend& backend_;
  model::Model model_;
  cache::KvCache cache_;
  Tensor counts_;                                       // [S, V] i32, see ops::SampleParams
  Tensor token_, logprob_, top_tokens_, top_logprobs_;  // of the logit rows, on the backend
  Tensor bias_;  // [max_logit_rows, V] f32; made when first needed
};

}  // namespace deepinfer::engine
