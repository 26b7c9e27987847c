#include "checkpoint/names.h"

#include <fmt/core.h>

#include <utility>

namespace deepinfer::checkpoint {
namespace {

constexpr int64_t kBlock = 32;

int64_t blocks(int64_t extent) {
  return (extent + kBlock - 1) / kBlock;
}

/// Emits the tensors of one file after another.
class NameTable {
 public:
  NameTable(const ModelConfig& config, const std::function<void(const ExpectedTensor&)>& visit)
      : c_(config), visit_(visit) {}

  void all() {
    if (c_.vision) {
      vision(*c_.vision);
      ++shard_;
    }
    embedding();
    ++shard_;
    for (int64_t layer = 0; layer < c_.num_layers; ++layer, ++shard_) backbone_layer(layer);
    kind_ = TensorKind::kEmbeddings;
    plain("head.weight", DType::kBF16, {c_.vocab_size, c_.hidden_size});
    plain("norm.weight", DType::kBF16, {c_.hidden_size});
    ++shard_;
    for (int64_t stage = 0; stage < c_.num_draft_stages; ++stage, ++shard_) draft_stage(stage);
    for (size_t i = 0; i < c_.engram_layers.size(); ++i, ++shard_) engram(i);
  }

 private:
  void plain(std::string name, DType dtype, const Shape& shape) {
    visit_({prefix_ + std::move(name), dtype, shape, kind_, shard_});
  }
  void bf16(const std::string& name, const Shape& shape) {
    plain(name + ".weight", DType::kBF16, shape);
  }
  void fp8(const std::string& name, int64_t out, int64_t in) {
    plain(name + ".weight", DType::kE4M3, {out, in});
    plain(name + ".scale", DType::kE8M0, {blocks(out), blocks(in)});
  }
  void fp4(const std::string& name, int64_t out, int64_t in) {
    plain(name + ".weight", DType::kE2M1x2, {out, in / 2});
    plain(name + ".scale", DType::kE8M0, {out, in / kBlock});
  }

  void embedding() {
    kind_ = TensorKind::kEmbeddings;
    plain("embed.weight", DType::kBF16, {c_.vocab_size, c_.hidden_size});
    if (!c_.vision) return;
    kind_ = TensorKind::kVision;
    for (const char* name : {"image_start", "image_end", "image_newline"}) {
      plain(name, DType::kBF16, {c_.hidden_size});
    }
  }

  /// What backbone layers and draft stages share.
  void attention() {
    const int64_t d = c_.hidden_size;
    fp8("attn.wq_a", c_.q_lora_rank, d);
    bf16("attn.q_norm", {c_.q_lora_rank});
    fp8("attn.wq_b", c_.num_heads * c_.head_dim, c_.q_lora_rank);
    fp8("attn.wkv", c_.head_dim, d);
    bf16("attn.kv_norm", {c_.head_dim});
    fp8("attn.wo_a", c_.o_groups * c_.o_lora_rank, c_.num_heads / c_.o_groups * c_.head_dim);
    fp8("attn.wo_b", d, c_.o_groups * c_.o_lora_rank);
    plain("attn.attn_sink", DType::kF32, {c_.num_heads});
  }
  void norms_and_streams() {
    const int64_t m = c_.hc_mult;
    const int64_t mixes = 2 * m + m * m;
    for (const char* site : {"attn", "ffn"}) {
      plain(fmt::format("hc_{}_fn", site), DType::kF32, {mixes, m * c_.hidden_size});
      plain(fmt::format("hc_{}_base", site), DType::kF32, {mixes});
      plain(fmt::format("hc_{}_scale", site), DType::kF32, {3});
      bf16(fmt::format("{}_norm", site), {c_.hidden_size});
    }
  }
  void router(int64_t num_experts) {
    bf16("ffn.gate", {num_experts, c_.hidden_size});
    plain("ffn.gate.bias", DType::kF32, {num_experts});
    plain("ffn.gate.bias_vl", DType::kF32, {num_experts});
  }
  void experts(int64_t num_experts) {
    const int64_t d = c_.hidden_size;
    const int64_t f = c_.moe_intermediate_size;
    for (int64_t expert = 0; expert < num_experts; ++expert) {
      const std::string name = fmt::format("ffn.experts.{}.", expert);
      fp4(name + "w1", f, d);
      fp4(name + "w2", d, f);
      fp4(name + "w3", f, d);
    }
  }
  void shared_expert() {
    const int64_t d = c_.hidden_size;
    const int64_t f = c_.moe_intermediate_size;
    fp8("ffn.shared_experts.w1", f, d);
    fp8("ffn.shared_experts.w2", d, f);
    fp8("ffn.shared_experts.w3", f, d);
  }

  void backbone_layer(int64_t layer) {
    prefix_ = fmt::format("layers.{}.", layer);
    kind_ = TensorKind::kAttention;
    attention();
    if (c_.is_index_source(layer)) {
      fp8("attn.indexer.wq_b", c_.index_num_heads * c_.index_head_dim, c_.q_lora_rank);
      bf16("attn.indexer.weights_proj", {c_.index_num_heads, c_.hidden_size});
    }
    if (c_.is_kv_source(layer)) {
      bf16("attn.indexer.wk", {c_.index_head_dim, c_.head_dim});
      bf16("attn.indexer.k_norm", {c_.index_head_dim});
      bf16("attn.compressor.wkv", {c_.head_dim, c_.hidden_size});
      bf16("attn.compressor.norm", {c_.head_dim});
      if (c_.ratio(layer) > 1) bf16("attn.compressor.wgate", {c_.head_dim, c_.hidden_size});
    }
    kind_ = TensorKind::kNormsAndStreams;
    norms_and_streams();
    kind_ = TensorKind::kRouters;
    router(c_.num_experts);
    kind_ = TensorKind::kRoutedExperts;
    experts(c_.num_experts);
    kind_ = TensorKind::kSharedExperts;
    shared_expert();
    prefix_.clear();
  }

  void draft_stage(int64_t stage) {
    const int64_t d = c_.hidden_size;
    prefix_ = fmt::format("mtp.{}.", stage);
    kind_ = TensorKind::kDraft;
    attention();
    norms_and_streams();
    router(c_.dspark_num_experts);
    shared_expert();
    if (stage == 0) {
      fp8("main_proj", d, static_cast<int64_t>(c_.dspark_target_layers.size()) * d);
      bf16("main_norm", {d});
    }
    if (stage == c_.num_draft_stages - 1) {
      bf16("norm", {d});
      bf16("markov_head.embed", {c_.vocab_size, c_.dspark_markov_rank});
      bf16("markov_head.head", {c_.vocab_size, c_.dspark_markov_rank});
      bf16("confidence_head.proj", {1, d + c_.dspark_markov_rank});
    }
    kind_ = TensorKind::kDraftExperts;
    experts(c_.dspark_num_experts);
    prefix_.clear();
  }

  void engram(size_t index) {
    const int64_t d = c_.hidden_size;
    const int64_t rows = c_.engram_num_embeddings[index];
    const int64_t columns = (c_.engram_max_ngram - 1) * c_.engram_num_heads;
    prefix_ = fmt::format("layers.{}.engram.", c_.engram_layers[index]);
    kind_ = TensorKind::kEngramTables;
    plain("embed.weight", DType::kE4M3, {rows, c_.engram_head_dim});
    plain("embed.scale", DType::kE8M0, {rows, c_.engram_head_dim / kBlock});
    kind_ = TensorKind::kEngram;
    fp8("wkv", (c_.hc_mult + 1) * d, columns * c_.engram_head_dim);
    plain("q_weight", DType::kBF16, {c_.hc_mult, d});
    plain("k_weight", DType::kBF16, {c_.hc_mult, d});
    prefix_.clear();
  }

  void vision(const VisionConfig& v) {
    const int64_t w = v.hidden_size;
    const int64_t d = c_.hidden_size;
    kind_ = TensorKind::kVision;
    prefix_ = "vision.";
    with_bias("patch_embed.proj", w, 3 * v.patch_size * v.patch_size);
    for (int64_t block = 0; block < v.num_layers; ++block) {
      prefix_ = fmt::format("vision.blocks.{}.", block);
      bf16("norm1", {w});
      bf16("norm2", {w});
      with_bias("attn.wqkv", 3 * w, w);
      with_bias("attn.wo", w, w);
      bf16("mlp.w1", {2 * v.intermediate_size, w});
      bf16("mlp.w2", {w, v.intermediate_size});
    }
    prefix_ = "vision.";
    bf16("norm", {w});
    prefix_ = "aligner.";
    with_bias("w1", d, v.downsample_ratio * v.downsample_ratio * w);
    with_bias("w2", d, d);
    prefix_.clear();
  }
  void with_bias(const std::string& name, int64_t out, int64_t in) {
    bf16(name, {out, in});
    plain(name + ".bias", DType::kBF16, {out});
  }

  const ModelConfig& c_;
  const std::function<void(const ExpectedTensor&)>& visit_;
  std::string prefix_;
  TensorKind kind_ = TensorKind::kEmbeddings;
  int shard_ = 0;
};

constexpr std::array<std::string_view, kNumTensorKinds> kKindNames = {"embedding and head",
                                                                      "attention",
                                                                      "norms and streams",
                                                                      "routers",
                                                                      "routed experts",
                                                                      "shared experts",
                                                                      "engram tables",
                                                                      "engram",
                                                                      "draft experts",
                                                                      "draft",
                                                                      "vision"};

/// The spelling of one dot-separated part of a name. `first`: it starts the name.
std::string_view canonical_part(std::string_view part, bool first) {
  if (first && part == "lm_head") return "head";
  if (first && part == "embed_tokens") return "embed";
  if (part == "self_attn") return "attn";
  if (part == "mlp") return "ffn";
  if (part == "weight_scale_inv" || part == "weight_scale") return "scale";
  if (part == "e_score_correction_bias") return "bias";
  return part;
}

}  // namespace

std::string_view to_string(TensorKind kind) {
  return kKindNames[static_cast<size_t>(kind)];
}

void for_each_tensor(const ModelConfig& config,
                     const std::function<void(const ExpectedTensor&)>& visit) {
  NameTable(config, visit).all();
}

int num_shards(const ModelConfig& config) {
  return static_cast<int>((config.vision ? 1 : 0) + 1 + config.num_layers + 1 +
                          config.num_draft_stages +
                          static_cast<int64_t>(config.engram_layers.size()));
}

std::string canonical_name(std::string_view name) {
  constexpr std::string_view kPrefix = "model.";
  if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
  // The vision tower says "mlp" in the release itself.
  if (name.starts_with("vision.") || name.starts_with("aligner.")) return std::string(name);
  std::string result;
  for (bool first = true;; first = false) {
    const size_t dot = name.find('.');
    result += canonical_part(name.substr(0, dot), first);
    if (dot == std::string_view::npos) return result;
    result += '.';
    name.remove_prefix(dot + 1);
  }
}

}  // namespace deepinfer::checkpoint
