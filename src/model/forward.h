#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cache/kv_cache.h"
#include "checkpoint/checkpoint.h"
#include "model/trace.h"
#include "model/weights.h"
#include "ops/backend.h"

namespace deepinfer::model {

/// The most rows that one step may have.
struct StepLimits {
  int64_t max_rows = 0;
  int64_t max_logit_rows = 0;
};

/// One step, symbolic: what the scheduler decided, without a position (see ops::RowBatch for the
/// arrays).
struct Step {
  std::span<const ops::PlanRow>
      rows;  // [B], deepest first; rows that are sampled come first of all
  std::span<const int32_t> span_begin;  // [B]
  std::span<const int32_t> span_size;   // [B]
  std::span<const int32_t> span_rows;   // [B]
  std::span<const int64_t>
      rows_at_layer;  // [L]: the first rows_at_layer[l] rows reach layer l, which makes their keys
                      // and entries. Its output is computed for those that go on to the next layer
                      // only; never grows with l.
  int64_t num_logit_rows = 0;  // the first rows, whose logits are wanted: they leave the last layer
};

/// The text model: the layers of spec/model.md as a sequence of operations. Owns the activations of
/// a step; owned by the engine thread. A row's results do not depend on the step's other rows.
class Model {
 public:
  /// `token_map` is Engram's compressed id of every token (empty without Engram). `checkpoint` and
  /// `backend` must outlive the model. `weights`: of both (bind_weights()). Errors:
  /// kResourceExhausted.
  Model(const checkpoint::Checkpoint& checkpoint, ops::Backend& backend,
        std::span<const int32_t> token_map, const StepLimits& limits,
        std::shared_ptr<const ModelWeights> weights);
  ~Model();

  /// Runs a step on the caches: writes pages and rings of its rows, leaves logits and row
  /// addresses. The caller samples and commits. `trace`, if given, receives all intermediates.
  void forward(const Step& step, cache::KvCache& cache, Trace* trace = nullptr);

  /// Of the last forward(): [num_logit_rows, V] f32, and the resolved rows.
  TensorView logits() const { return logits_; }
  const ops::RowBatch& rows() const { return rows_; }
  const StepLimits& limits() const { return limits_; }
  const std::shared_ptr<const ModelWeights>& weights() const { return weights_; }

  /// The extents of a cache for this model.
  static cache::CacheShape cache_shape(const checkpoint::ModelConfig& config);

 private:
  struct Buffers;
  struct LayerContext;

  void resolve(const Step& step, cache::KvCache& cache);
  void run_layer(const LayerContext& layer);
  void engram(const LayerContext& layer);
  void attention(const LayerContext& layer);
  void compress_and_select(const LayerContext& layer);
  void feed_forward(const LayerContext& layer);
  void begin_site(const LayerContext& layer, const SiteWeights& site, int64_t num_rows,
                  const char* name);
  void compute_logits(int64_t num_rows, Trace* trace);

  const checkpoint::ModelConfig& config_;
  ops::Backend& backend_;
  StepLimits limits_;
  std::shared_ptr<const ModelWeights> weights_;
  std::vector<TensorView> engram_multipliers_, engram_primes_, engram_offsets_;  // per Engram layer
  TensorView token_map_;
  int32_t engram_pad_ = 0;
  ops::Rope main_rope_, compress_rope_;
  std::vector<Tensor> constants_;
  std::unique_ptr<Buffers> buffers_;
  ops::RowBatch rows_;
  TensorView logits_;
};

}  // namespace deepinfer::model
