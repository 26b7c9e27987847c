#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <string>

#include "base/json.h"
#include "checkpoint/config.h"

namespace deepinfer::checkpoint {
namespace {

/// A float as the shortest decimal that reads back as it: 1e-6, not 9.99999997e-07.
double shortest(float value) {
  return std::stod(fmt::format("{}", value));
}

const char* spelling(ScoringFunction scoring) {
  switch (scoring) {
    case ScoringFunction::kSoftmax:
      return "softmax";
    case ScoringFunction::kSigmoid:
      return "sigmoid";
    case ScoringFunction::kSqrtSoftplus:
      break;
  }
  return "sqrtsoftplus";
}

Json optional_id(int32_t id) {
  return id < 0 ? Json(nullptr) : Json(id);
}

Json text_config(const ModelConfig& c) {
  Json text = {
      {"model_type", "deepseek_v41_text"},
      {"vocab_size", c.vocab_size},
      {"hidden_size", c.hidden_size},
      {"num_hidden_layers", c.num_layers},
      {"num_attention_heads", c.num_heads},
      {"num_key_value_heads", 1},
      {"head_dim", c.head_dim},
      {"qk_rope_head_dim", c.rope_head_dim},
      {"q_lora_rank", c.q_lora_rank},
      {"o_lora_rank", c.o_lora_rank},
      {"o_groups", c.o_groups},
      {"hidden_act", "silu"},
      {"swiglu_limit", shortest(c.swiglu_limit)},
      {"rms_norm_eps", shortest(c.rms_eps)},
      {"attention_bias", false},
      {"tie_word_embeddings", false},
      {"max_position_embeddings", c.max_positions},
      {"rope_theta", c.rope_theta},
      {"compress_rope_theta", c.compress_rope_theta},
      {"moe_intermediate_size", c.moe_intermediate_size},
      {"n_routed_experts", c.num_experts},
      {"n_shared_experts", 1},
      {"num_experts_per_tok", c.experts_per_token},
      {"scoring_func", spelling(c.scoring)},
      {"topk_method", "noaux_tc"},
      {"norm_topk_prob", c.normalize_topk},
      {"routed_scaling_factor", shortest(c.routed_scaling_factor)},
      {"sliding_window", c.window},
      {"compress_ratios", c.compress_ratios},
      {"kv_source_layer_ids", c.kv_source_layers},
      {"index_source_layer_ids", c.index_source_layers},
      {"index_n_heads", c.index_num_heads},
      {"index_head_dim", c.index_head_dim},
      {"index_topk", c.index_topk},
      {"candidate_source_layer_id", c.candidate_source_layer},
      {"candidate_topk_blocks", c.candidate_topk_blocks},
      {"candidate_block_size", c.candidate_block_size},
      {"hc_mult", c.hc_mult},
      {"hc_sinkhorn_iters", c.hc_sinkhorn_iterations},
      {"hc_eps", shortest(c.hc_eps)},
  };
  if (c.gate_temperature != 1) text["gate_temp"] = shortest(c.gate_temperature);
  const RopeScaling& yarn = c.rope_scaling;
  if (yarn.factor != 1) {
    text["rope_scaling"] = {{"rope_type", "yarn"},
                            {"factor", yarn.factor},
                            {"beta_fast", yarn.beta_fast},
                            {"beta_slow", yarn.beta_slow},
                            {"original_max_position_embeddings", yarn.original_max_positions}};
  }
  return text;
}

Json engram_config(const ModelConfig& c) {
  Json engram = {{"engram_layer_ids", c.engram_layers},
                 {"engram_num_embeddings", c.engram_num_embeddings}};
  if (c.engram_layers.empty()) return engram;
  engram.update({{"engram_max_ngram_size", c.engram_max_ngram},
                 {"engram_vocab_size", c.engram_vocab_size},
                 {"engram_n_heads", c.engram_num_heads},
                 {"engram_head_dim", c.engram_head_dim},
                 {"engram_pad_token_id", c.engram_pad_token_id},
                 {"engram_compressed_vocab_size", c.engram_compressed_vocab_size}});
  return engram;
}

Json draft_config(const ModelConfig& c) {
  Json draft = {{"num_nextn_predict_layers", c.num_draft_stages}};
  if (c.num_draft_stages == 0) return draft;
  draft.update({{"dspark_block_size", c.dspark_block_size},
                {"dspark_noise_token_id", c.dspark_noise_token_id},
                {"dspark_target_layer_ids", c.dspark_target_layers},
                {"dspark_markov_rank", c.dspark_markov_rank},
                {"dspark_n_routed_experts", c.dspark_num_experts},
                {"dspark_num_experts_per_tok", c.dspark_experts_per_token}});
  return draft;
}

Json vision_config(const VisionConfig& v) {
  return {{"model_type", "deepseek_v41_vision"},
          {"num_hidden_layers", v.num_layers},
          {"hidden_size", v.hidden_size},
          {"num_attention_heads", v.num_heads},
          {"intermediate_size", v.intermediate_size},
          {"patch_size", v.patch_size},
          {"rope_theta", v.rope_theta},
          {"downsample_ratio", v.downsample_ratio},
          {"max_image_tokens", v.max_image_tokens},
          {"min_pixels", v.min_pixels},
          {"max_wh_ratio", v.max_wh_ratio ? Json(*v.max_wh_ratio) : Json(nullptr)}};
}

}  // namespace

std::string to_json(const ModelConfig& config) {
  Json text = text_config(config);
  text.update(engram_config(config));
  text.update(draft_config(config));
  const Json root = {
      {"architectures", {"DeepseekV41ForCausalLM"}},
      {"model_type", "deepseek_v41"},
      {"dtype", "bfloat16"},
      {"bos_token_id", optional_id(config.bos_token_id)},
      {"eos_token_id", optional_id(config.eos_token_id)},
      {"pad_token_id", optional_id(config.pad_token_id)},
      {"image_token_id", optional_id(config.image_token_id)},
      {"quantization_config",
       {{"quant_method", "fp8"},
        {"activation_scheme", "dynamic"},
        {"weight_block_size", {32, 32}},
        {"scale_fmt", "ue8m0"},
        {"expert_dtype", "fp4"}}},
      {"text_config", text},
      {"vision_config", config.vision ? vision_config(*config.vision) : Json(nullptr)},
  };
  return root.dump(2) + "\n";
}

}  // namespace deepinfer::checkpoint
