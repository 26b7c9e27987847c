#include "model/weights.h"

#include <fmt/core.h>

#include <optional>
#include <string>

#include "base/progress.h"
#include "checkpoint/memory_plan.h"

namespace deepinfer::model {
namespace {

/// Where weights come from and go to.
struct Binding {
  const checkpoint::Checkpoint& checkpoint;
  ops::Backend& backend;
  std::optional<ProgressBar> progress;
  int64_t copied_bytes = 0;

  TensorView place(const std::string& name, TensorView (ops::Backend::*how)(const TensorView&)) {
    const TensorView stored = checkpoint.tensor(name);
    const TensorView placed = (backend.*how)(stored);
    if (placed.data() != stored.data()) {
      checkpoint.release(name);
      copied_bytes += stored.num_bytes();
      if (progress) progress->update(copied_bytes / kMebi);
    }
    return placed;
  }

  static constexpr int64_t kMebi = int64_t{1} << 20;
};

/// Looks tensors up below a name prefix and places them where the backend wants them.
class Binder {
 public:
  Binder(Binding& binding, std::string prefix) : binding_(binding), prefix_(std::move(prefix)) {}

  Binder below(const std::string& name) const { return {binding_, prefix_ + name + "."}; }
  TensorView tensor(const std::string& name) const {
    return binding_.place(prefix_ + name, &ops::Backend::place);
  }
  QuantView weight(const std::string& name) const { return quantized(name, &ops::Backend::place); }
  /// A table whose rows are gathered.
  QuantView table(const std::string& name) const {
    return quantized(name, &ops::Backend::place_table);
  }

 private:
  QuantView quantized(const std::string& name,
                      TensorView (ops::Backend::*how)(const TensorView&)) const {
    const std::string full = prefix_ + name;
    QuantView result = binding_.checkpoint.weight(full);
    result.weight = binding_.place(full + ".weight", how);
    if (!result.scale.empty()) result.scale = binding_.place(full + ".scale", how);
    return result;
  }

  Binding& binding_;
  std::string prefix_;
};

SiteWeights bind_site(const Binder& layer, const std::string& name) {
  return {.fn = layer.tensor("hc_" + name + "_fn"),
          .base = layer.tensor("hc_" + name + "_base"),
          .scale = layer.tensor("hc_" + name + "_scale"),
          .norm = layer.tensor(name + "_norm.weight")};
}

AttentionWeights bind_attention(const Binder& attn) {
  return {.wq_a = attn.weight("wq_a"),
          .q_norm = attn.tensor("q_norm.weight"),
          .wq_b = attn.weight("wq_b"),
          .wkv = attn.weight("wkv"),
          .kv_norm = attn.tensor("kv_norm.weight"),
          .sink = attn.tensor("attn_sink"),
          .wo_a = attn.weight("wo_a"),
          .wo_b = attn.weight("wo_b")};
}

CompressorWeights bind_compressor(const Binder& attn, int32_t ratio) {
  return {.wkv = attn.tensor("compressor.wkv.weight"),
          .wgate = ratio > 1 ? attn.tensor("compressor.wgate.weight") : TensorView(),
          .norm = attn.tensor("compressor.norm.weight"),
          .index_wk = attn.tensor("indexer.wk.weight"),
          .index_norm = attn.tensor("indexer.k_norm.weight")};
}

ops::ExpertWeights bind_expert(const Binder& expert) {
  return {.w1 = expert.weight("w1"), .w3 = expert.weight("w3"), .w2 = expert.weight("w2")};
}

MoeWeights bind_moe(const Binder& ffn, int64_t num_experts) {
  MoeWeights moe{.gate = ffn.tensor("gate.weight"),
                 .bias = ffn.tensor("gate.bias"),
                 .routed = {},
                 .shared = bind_expert(ffn.below("shared_experts"))};
  for (int64_t e = 0; e < num_experts; ++e) {
    moe.routed.push_back(bind_expert(ffn.below(fmt::format("experts.{}", e))));
  }
  return moe;
}

LayerWeights bind_layer(const checkpoint::ModelConfig& config, const Binder& layer, int64_t l) {
  const Binder attn = layer.below("attn");
  LayerWeights weights{.attention_site = bind_site(layer, "attn"),
                       .attention = bind_attention(attn),
                       .compressor = {},
                       .indexer = {},
                       .engram = {},
                       .ffn_site = bind_site(layer, "ffn"),
                       .moe = bind_moe(layer.below("ffn"), config.num_experts)};
  if (config.is_kv_source(l)) weights.compressor = bind_compressor(attn, config.ratio(l));
  if (config.is_index_source(l)) {
    weights.indexer = {.wq_b = attn.weight("indexer.wq_b"),
                       .weights_proj = attn.tensor("indexer.weights_proj.weight")};
  }
  if (config.engram_index(l) >= 0) {
    weights.engram = {.table = layer.table("engram.embed"),
                      .wkv = layer.weight("engram.wkv"),
                      .q_weight = layer.tensor("engram.q_weight"),
                      .k_weight = layer.tensor("engram.k_weight")};
  }
  return weights;
}

}  // namespace

std::shared_ptr<const ModelWeights> bind_weights(const checkpoint::Checkpoint& checkpoint,
                                                 ops::Backend& backend, bool show_progress) {
  Binding binding{.checkpoint = checkpoint, .backend = backend, .progress = std::nullopt};
  if (show_progress) {
    const int64_t bytes = checkpoint::plan_memory(checkpoint.config()).resident_bytes;
    binding.progress.emplace("loading weights", bytes / Binding::kMebi, "MiB");
  }
  const Binder root(binding, "");
  auto weights = std::make_shared<ModelWeights>(ModelWeights{.embed = root.tensor("embed.weight"),
                                                             .layers = {},
                                                             .norm = root.tensor("norm.weight"),
                                                             .head = root.tensor("head.weight")});
  for (int64_t l = 0; l < checkpoint.config().num_layers; ++l) {
    weights->layers.push_back(
        bind_layer(checkpoint.config(), root.below(fmt::format("layers.{}", l)), l));
  }
  return weights;
}

}  // namespace deepinfer::model
