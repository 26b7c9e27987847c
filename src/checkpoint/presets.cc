#include "checkpoint/presets.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace deepinfer::checkpoint {
namespace {

ModelConfig nano_config() {
  ModelConfig c = release_config();
  c.vision.reset();
  c.image_token_id = -1;
  c.vocab_size = 512;
  c.hidden_size = 128;
  c.num_heads = 2;
  c.q_lora_rank = 64;
  c.o_groups = 2;
  c.o_lora_rank = 32;
  c.window = 32;
  c.index_num_heads = 4;
  c.index_topk = 16;
  c.candidate_topk_blocks = 4;
  c.moe_intermediate_size = 64;
  c.num_experts = 8;
  c.experts_per_token = 2;
  c.engram_vocab_size = 211;
  c.engram_num_heads = 2;
  c.engram_head_dim = 64;
  c.engram_compressed_vocab_size = 400;
  c.num_draft_stages = 2;
  c.dspark_noise_token_id = 3;
  c.dspark_markov_rank = 32;
  c.dspark_num_experts = 4;
  c.dspark_experts_per_token = 2;
  set_schedule(c, 10);  // the least with a layer of every mode: 9 re-indexes
  return c;
}

ModelConfig mini_config() {
  ModelConfig c = release_config();
  c.vision.reset();
  c.hidden_size = 1024;
  c.num_heads = 16;
  c.q_lora_rank = 384;
  c.o_groups = 4;
  c.o_lora_rank = 256;
  c.moe_intermediate_size = 768;
  c.num_experts = 128;
  c.engram_vocab_size = 1 << 16;
  c.dspark_num_experts = 32;
  set_schedule(c, 12);
  return c;
}

ModelConfig flash_slice_config() {
  ModelConfig c = release_config();
  c.vision.reset();
  c.num_experts = 32;
  c.dspark_num_experts = 16;
  c.engram_vocab_size = 1 << 16;
  set_schedule(c, 6);
  return c;
}

int64_t checked(std::string_view name, int64_t value, int64_t min, int64_t max) {
  if (value < min || value > max) {
    fail(ErrorCode::kInvalidArgument, "{} is {}; it must be from {} to {}", name, value, min, max);
  }
  return value;
}

void apply(const PresetOverrides& overrides, ModelConfig& c) {
  if (overrides.experts) {
    c.num_experts = checked("experts", *overrides.experts, 1, 4096);
    c.experts_per_token = std::min(c.experts_per_token, c.num_experts);
    c.dspark_num_experts = std::min(c.dspark_num_experts, c.num_experts);
    c.dspark_experts_per_token = std::min(c.dspark_experts_per_token, c.dspark_num_experts);
  }
  if (overrides.vocab_size) {
    c.vocab_size = checked("vocab_size", *overrides.vocab_size, 16, 1 << 24);
    const auto last = static_cast<int32_t>(c.vocab_size - 1);
    c.engram_compressed_vocab_size = std::min(c.engram_compressed_vocab_size, c.vocab_size);
    c.dspark_noise_token_id = std::min(c.dspark_noise_token_id, last);
    c.image_token_id = std::min(c.image_token_id, last);
  }
  if (overrides.engram_vocab_size) {
    c.engram_vocab_size =
        checked("engram_vocab_size", *overrides.engram_vocab_size, 2, int64_t{1} << 28);
  }
  if (overrides.layers) checked("layers", *overrides.layers, 1, 512);
  if (overrides.layers || overrides.engram_vocab_size) {
    set_schedule(c, overrides.layers.value_or(c.num_layers));
  }
}

}  // namespace

ModelConfig release_config() {
  ModelConfig c;
  c.vocab_size = 129280;
  c.hidden_size = 5120;
  c.num_heads = 64;
  c.head_dim = 512;
  c.rope_head_dim = 64;
  c.q_lora_rank = 1280;
  c.o_groups = 8;
  c.o_lora_rank = 1024;
  c.window = 128;
  c.max_positions = 1048576;
  c.rms_eps = 1e-20F;
  c.index_num_heads = 32;
  c.index_head_dim = 128;
  c.index_topk = 512;
  c.candidate_topk_blocks = 2048;
  c.candidate_block_size = 8;
  c.rope_theta = 10000;
  c.compress_rope_theta = 160000;
  c.rope_scaling = {.factor = 16, .beta_fast = 32, .beta_slow = 1, .original_max_positions = 65536};
  c.moe_intermediate_size = 2304;
  c.num_experts = 384;
  c.experts_per_token = 6;
  c.routed_scaling_factor = 1.5F;
  c.swiglu_limit = 10;
  c.hc_mult = 4;
  c.hc_sinkhorn_iterations = 20;
  c.hc_eps = 1e-6F;
  c.engram_max_ngram = 4;
  c.engram_vocab_size = 16000000;
  c.engram_num_heads = 8;
  c.engram_head_dim = 256;
  c.engram_compressed_vocab_size = 99092;
  c.engram_pad_token_id = 2;
  c.num_draft_stages = 3;
  c.dspark_block_size = 5;
  c.dspark_noise_token_id = 128799;
  c.dspark_markov_rank = 256;
  c.dspark_num_experts = 128;
  c.dspark_experts_per_token = 3;
  c.bos_token_id = 0;
  c.eos_token_id = 1;
  c.pad_token_id = 2;
  c.image_token_id = 129264;
  c.vision = VisionConfig{.num_layers = 32,
                          .hidden_size = 1024,
                          .num_heads = 16,
                          .intermediate_size = 2816,
                          .patch_size = 14,
                          .rope_theta = 10000,
                          .downsample_ratio = 3,
                          .max_image_tokens = 1024,
                          .min_pixels = 295936,
                          .max_wh_ratio = std::nullopt};
  set_schedule(c, 40);
  return c;
}

void set_schedule(ModelConfig& c, int64_t num_layers) {
  constexpr int32_t kSourceEvery = 6;
  constexpr int32_t kReindexEvery = 4;
  constexpr int32_t kDraftTargets = 3;
  const auto layers = static_cast<int32_t>(num_layers);
  const int32_t window_only = layers >= 6 ? 2 : layers >= 3 ? 1 : 0;
  const int32_t decoder = layers / 2;
  c.num_layers = num_layers;
  c.compress_ratios.assign(static_cast<size_t>(num_layers + c.num_draft_stages), 0);
  for (int32_t layer = window_only; layer < layers; ++layer) {
    c.compress_ratios[static_cast<size_t>(layer)] = layer < decoder ? 2 : 1;
  }
  c.kv_source_layers.clear();
  for (int32_t layer = window_only; layer < decoder; layer += kSourceEvery)
    c.kv_source_layers.push_back(layer);
  const int32_t last_encoder_source = c.kv_source_layers.empty() ? -1 : c.kv_source_layers.back();
  c.index_source_layers = c.kv_source_layers;
  c.kv_source_layers.push_back(decoder);
  for (int32_t layer = decoder; layer < layers; layer += kReindexEvery)
    c.index_source_layers.push_back(layer);
  c.candidate_source_layer = decoder;

  c.engram_layers.clear();
  if (layers > 1) c.engram_layers.push_back(1);
  if (last_encoder_source > 1) c.engram_layers.push_back(last_encoder_source);
  c.engram_num_embeddings.clear();
  for (const std::vector<int64_t>& primes : engram_primes(c)) {
    c.engram_num_embeddings.push_back(std::accumulate(primes.begin(), primes.end(), int64_t{0}));
  }
  c.dspark_target_layers.clear();
  for (int32_t layer = std::max(0, layers - kDraftTargets); layer < layers; ++layer) {
    c.dspark_target_layers.push_back(layer);
  }
}

ModelConfig preset_config(std::string_view preset, const PresetOverrides& overrides) {
  ModelConfig config;
  if (preset == "nano") {
    config = nano_config();
  } else if (preset == "mini") {
    config = mini_config();
  } else if (preset == "flash-slice") {
    config = flash_slice_config();
  } else if (preset == "flash") {
    config = release_config();
  } else {
    fail(ErrorCode::kInvalidArgument,
         "\"{}\" is not a preset; it must be nano, mini, flash-slice or flash", preset);
  }
  apply(overrides, config);
  return config;
}

}  // namespace deepinfer::checkpoint
