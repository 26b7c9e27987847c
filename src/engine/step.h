#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <vector>

#include "cache/cache_tiers.h"
#include "deepinfer/sampling_params.h"
#include "ops/commit.h"
#include "ops/sample.h"
#include "scheduler/batch_plan.h"
#include "tensor/tensor.h"

namespace deepinfer::engine {

/// What a logit row of a step needs to be sampled.
struct RowRequest {
  ops::SampleRow sample;
  int32_t num_top = 0;  // most likely tokens to report
  /// Set if the row's logits are biased (sampling::fill_bias). Shared, because a step may outlive
  /// its request.
  std::shared_ptr<const SamplingParams> biased;
  int64_t num_generated = 0;
};

/// The tokens that a starting slot's sequence has already, for penalties.
struct SeenTokens {
  int32_t slot;
  std::vector<int32_t> prompt;
  std::vector<int32_t> output;
};

/// One step on its way: what to compute, then what came of it. Between launch and completion it
/// belongs to the executor. Its arrays are kept and filled again.
struct Step {
  // In.
  scheduler::BatchPlan plan;
  std::vector<RowRequest> rows;  // [num_logit_rows]
  std::vector<SeenTokens> seen;  // of starting slots whose request has penalties
  bool wants_logits = false;
  std::unique_ptr<cache::CacheTransfers> transfers;  // copied first; null: none
  uint64_t epoch = 0;  // steps of an epoch in which one failed are not computed, see StepExecutor

  /// Host operands of the step's operations: asynchronous ones read them after the calls.
  struct Operands {
    std::vector<ops::SampleRow> sample_rows;
    std::vector<ops::CommitEntry> entries;
    std::vector<Tensor> counts;  // [V] i32, of `seen`
    Tensor bias;                 // [num_logit_rows, V] f32
  };
  Operands operands;

  // Out, valid when the executor says so.
  int64_t num_top = 0;       // columns of top_tokens and top_logprobs
  Tensor token;              // [max rows] i32, host
  Tensor logprob;            // [max rows] f32
  Tensor top_tokens;         // [max rows · num_top] i32
  Tensor top_logprobs;       // [max rows · num_top] f32
  Tensor logits;             // [num_logit_rows, V] f32, if wanted
  std::exception_ptr error;  // what the step failed with
  bool skipped = false;      // an earlier step of its epoch failed
  double seconds = 0;        // from the step's turn to its results
  uint64_t mark = 0;         // Backend::record() behind its last operation

  /// A step that computes nothing.
  void clear() {
    plan.clear();
    rows.clear();
    seen.clear();
    wants_logits = false;
  }
};

/// Carries out steps, one behind the other, while the engine thread goes on. When a step fails,
/// those launched behind it in the same epoch are skipped, because they build on it. Called by the
/// engine thread.
class StepExecutor {
 public:
  virtual ~StepExecutor() = default;
  /// Puts a step behind those launched before and returns at once.
  virtual void launch(Step& step) = 0;
  /// Whether a launched step has its results, without waiting.
  virtual bool done(const Step& step) = 0;
  virtual void wait(const Step& step) = 0;
};

}  // namespace deepinfer::engine
