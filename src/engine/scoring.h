#pragma once

#include <cstdint>
#include <exception>
#include <future>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "deepinfer/engine.h"
#include "engine/step.h"
#include "model/weights.h"
#include "ops/backend.h"

namespace deepinfer::engine {

/// A sequence whose log-probabilities are wanted. Owned by the engine thread; the asker waits for
/// the promise.
class ScoreJob {
 public:
  ScoreJob(std::vector<int32_t> tokens, bool want_logits, int64_t vocab_size);

  const std::vector<int32_t>& tokens() const { return tokens_; }
  std::future<ScoreResult> result() { return promise_.get_future(); }

  bool wants_logits() const { return !result_.logits.empty(); }
  /// How the row of token number `index` is sampled: its successor is forced.
  RowRequest row(int64_t index) const;
  /// Takes the results of consecutive rows from token number `first`; true when the sequence is
  /// done and the result delivered. `logits`: [rows, V] f32, host; may be empty if they are
  /// not wanted.
  bool accept(int64_t first, std::span<const float> logprobs, const TensorView& logits);
  void fail(std::exception_ptr error) { promise_.set_exception(std::move(error)); }

 private:
  std::vector<int32_t> tokens_;
  int64_t vocab_size_;
  ScoreResult result_;
  std::promise<ScoreResult> promise_;
};

/// Runs a whole sequence as one step with activations and caches of its own and returns every
/// intermediate (debugging and golden tests). `weights`: of the backend's model. Errors:
/// kResourceExhausted above kMaxTraceTokens.
std::vector<TraceTensor> trace_sequence(const checkpoint::Checkpoint& checkpoint,
                                        ops::Backend& backend, std::span<const int32_t> token_map,
                                        std::shared_ptr<const model::ModelWeights> weights,
                                        std::span<const int32_t> tokens);
inline constexpr int64_t kMaxTraceTokens = 4096;

}  // namespace deepinfer::engine
