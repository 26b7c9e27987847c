#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace deepinfer::checkpoint {

struct RopeScaling {
  double factor = 1;  // 1: no YaRN
  double beta_fast = 32;
  double beta_slow = 1;
  int64_t original_max_positions = 65536;

  bool operator==(const RopeScaling&) const = default;
};

enum class ScoringFunction { kSqrtSoftplus, kSoftmax, kSigmoid };

/// The vision tower's hyper-parameters (spec/checkpoint.md §1.3, §6).
struct VisionConfig {
  int64_t num_layers = 0;
  int64_t hidden_size = 0;
  int64_t num_heads = 0;
  int64_t intermediate_size = 0;
  int64_t patch_size = 0;
  double rope_theta = 10000;
  int64_t downsample_ratio = 0;
  int64_t max_image_tokens = 0;
  int64_t min_pixels = 0;
  std::optional<double> max_wh_ratio;

  bool operator==(const VisionConfig&) const = default;
};

/// One description of the model, whichever of the two config files it came from (spec/checkpoint.md
/// §1; symbols of spec/model.md §1 in comments). A value of this type has passed the checks of
/// checkpoint.md §1.5.
struct ModelConfig {
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;    // d
  int64_t num_layers = 0;     // L
  int64_t num_heads = 0;      // H
  int64_t head_dim = 0;       // D
  int64_t rope_head_dim = 0;  // R
  int64_t q_lora_rank = 0;    // rq
  int64_t o_groups = 0;       // G
  int64_t o_lora_rank = 0;    // ro
  int64_t window = 0;         // W
  int64_t max_positions = 0;  // context length
  float rms_eps = 0;          // ε

  std::vector<int32_t> compress_ratios;  // ρ, one per layer and draft stage
  std::vector<int32_t> kv_source_layers;
  std::vector<int32_t> index_source_layers;
  int64_t index_num_heads = 0;          // Hi
  int64_t index_head_dim = 0;           // Di
  int64_t index_topk = 0;               // K
  int32_t candidate_source_layer = -1;  // -1: no candidate level
  int64_t candidate_topk_blocks = 0;
  int64_t candidate_block_size = 0;

  double rope_theta = 0;
  double compress_rope_theta = 0;
  RopeScaling rope_scaling;

  int64_t moe_intermediate_size = 0;  // f
  int64_t num_experts = 0;            // E
  int64_t experts_per_token = 0;      // k
  ScoringFunction scoring = ScoringFunction::kSqrtSoftplus;
  bool normalize_topk = true;
  float routed_scaling_factor = 1;
  float swiglu_limit = 0;  // 0: no limit
  float gate_temperature = 1;

  int64_t hc_mult = 0;  // m
  int64_t hc_sinkhorn_iterations = 0;
  float hc_eps = 0;  // ε_hc

  std::vector<int32_t> engram_layers;          // empty: no Engram
  std::vector<int64_t> engram_num_embeddings;  // rows of each Engram layer's table
  int64_t engram_max_ngram = 0;
  int64_t engram_vocab_size = 0;
  int64_t engram_num_heads = 0;
  int64_t engram_head_dim = 0;
  int64_t engram_compressed_vocab_size = 0;
  int32_t engram_pad_token_id = 0;

  int64_t num_draft_stages = 0;
  int64_t dspark_block_size = 0;
  int32_t dspark_noise_token_id = 0;
  std::vector<int32_t> dspark_target_layers;
  int64_t dspark_markov_rank = 0;
  int64_t dspark_num_experts = 0;
  int64_t dspark_experts_per_token = 0;

  int32_t bos_token_id = -1;
  int32_t eos_token_id = -1;
  int32_t pad_token_id = -1;
  int32_t image_token_id = -1;
  std::optional<VisionConfig> vision;

  bool operator==(const ModelConfig&) const = default;

  /// ρ of layer `layer`.
  int32_t ratio(int64_t layer) const { return compress_ratios[static_cast<size_t>(layer)]; }
  /// The KV source whose cache `layer` reads: the closest at or before it; -1 if ρ is 0.
  int32_t kv_source_of(int64_t layer) const;
  /// The index source whose selection `layer` uses; -1 if ρ is 0.
  int32_t index_source_of(int64_t layer) const;
  bool is_kv_source(int64_t layer) const {
    return ratio(layer) > 0 && kv_source_of(layer) == layer;
  }
  bool is_index_source(int64_t layer) const {
    return ratio(layer) > 0 && index_source_of(layer) == layer;
  }
  /// Index of `layer` in engram_layers, or -1.
  int32_t engram_index(int64_t layer) const;
};

/// Parses a configuration of either form: types and ranges of every number, so that sizes and
/// offsets computed from them cannot overflow or divide by zero, but not yet the relations between
/// them. `source` names the text in errors. Errors: kInvalidFile naming the key, its value and what
/// would be right.
ModelConfig parse_config(std::string_view text, std::string_view source);

enum class CheckOutcome { kPass, kFail, kNotApplicable };

/// The result of one check of spec/checkpoint.md §1.5 or §7.
struct CheckResult {
  std::string name;  // what must hold: "every KV source is an index source"
  CheckOutcome outcome = CheckOutcome::kPass;
  std::string detail;  // where it does not hold, or why it does not apply; may be empty
};

/// Every check of spec/checkpoint.md §1.5 that needs the configuration alone, and the relations
/// that the model relies on (dimensions that quantised blocks, heads and groups must divide). Needs
/// a value from parse_config().
std::vector<CheckResult> check_config(const ModelConfig& config);

/// The bucket sizes of each Engram layer's columns, n-gram order 2 first (spec/checkpoint.md §5.3).
std::vector<std::vector<int64_t>> engram_primes(const ModelConfig& config);

/// The configuration as a nested config.json; parse_config() gives the same value back.
std::string to_json(const ModelConfig& config);

/// Reads DIR/config.json, nested (Hugging Face) or flat (inference/config.json) form, and runs
/// check_config(). Errors: kNotFound; kInvalidFile naming the file, the key or check and what would
/// be right.
ModelConfig load_config(const std::filesystem::path& directory);

}  // namespace deepinfer::checkpoint
