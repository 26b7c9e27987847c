#include "checkpoint/config.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "checkpoint/presets.h"

namespace deepinfer::checkpoint {
namespace {

const std::filesystem::path kSource = DEEPINFER_SOURCE_DIR;

/// Reads a configuration text and runs all checks, as load_config does.
ModelConfig load_text(const std::string& text) {
  ModelConfig config = parse_config(text, "config.json");
  for (const CheckResult& check : check_config(config)) {
    if (check.outcome == CheckOutcome::kFail) {
      fail(ErrorCode::kInvalidFile, "{}, but {}", check.name, check.detail);
    }
  }
  return config;
}

std::string error_of(const std::string& text) {
  try {
    load_text(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidFile);
    return error.what();
  }
  return "accepted";
}

/// The release in the flat form of inference/config.json.
Json flat_release() {
  const Json nested = parse_json(to_json(release_config()), "release");
  const Json& text = nested["text_config"];
  const Json& yarn = text["rope_scaling"];
  const Json& vision = nested["vision_config"];
  Json flat = {{"dim", text["hidden_size"]},
               {"n_layers", text["num_hidden_layers"]},
               {"n_heads", text["num_attention_heads"]},
               {"rope_head_dim", text["qk_rope_head_dim"]},
               {"norm_eps", text["rms_norm_eps"]},
               {"rope_factor", yarn["factor"]},
               {"beta_fast", yarn["beta_fast"]},
               {"beta_slow", yarn["beta_slow"]},
               {"original_seq_len", yarn["original_max_position_embeddings"]},
               {"moe_inter_dim", text["moe_intermediate_size"]},
               {"n_activated_experts", text["num_experts_per_tok"]},
               {"score_func", text["scoring_func"]},
               {"route_scale", text["routed_scaling_factor"]},
               {"window_size", text["sliding_window"]},
               {"kv_source_layers", text["kv_source_layer_ids"]},
               {"index_source_layers", text["index_source_layer_ids"]},
               {"candidate_source_layer", text["candidate_source_layer_id"]},
               {"engram_pad_id", text["engram_pad_token_id"]},
               {"n_mtp_layers", text["num_nextn_predict_layers"]},
               {"dspark_n_activated_experts", text["dspark_num_experts_per_tok"]},
               {"dtype", "fp8"},
               {"expert_dtype", "fp4"},
               {"image_token_id", nested["image_token_id"]},
               {"vision_n_layers", vision["num_hidden_layers"]},
               {"vision_dim", vision["hidden_size"]},
               {"vision_n_heads", vision["num_attention_heads"]},
               {"vision_inter_dim", vision["intermediate_size"]},
               {"vision_patch_size", vision["patch_size"]},
               {"vision_rope_theta", vision["rope_theta"]},
               {"vision_downsample_ratio", vision["downsample_ratio"]},
               {"vision_max_n_token", vision["max_image_tokens"]},
               {"vision_min_pixels", vision["min_pixels"]},
               {"vision_max_wh_ratio", nullptr}};
  for (const char* same : {"vocab_size",
                           "head_dim",
                           "q_lora_rank",
                           "o_lora_rank",
                           "o_groups",
                           "swiglu_limit",
                           "rope_theta",
                           "compress_rope_theta",
                           "n_routed_experts",
                           "n_shared_experts",
                           "compress_ratios",
                           "index_n_heads",
                           "index_head_dim",
                           "index_topk",
                           "candidate_topk_blocks",
                           "candidate_block_size",
                           "hc_mult",
                           "hc_sinkhorn_iters",
                           "hc_eps",
                           "engram_layer_ids",
                           "engram_num_embeddings",
                           "engram_max_ngram_size",
                           "engram_vocab_size",
                           "engram_n_heads",
                           "engram_head_dim",
                           "engram_compressed_vocab_size",
                           "dspark_block_size",
                           "dspark_noise_token_id",
                           "dspark_target_layer_ids",
                           "dspark_markov_rank",
                           "dspark_n_routed_experts"}) {
    flat[same] = text[same];
  }
  return flat;
}

TEST(Config, ReadsShippedModels) {
  const ModelConfig tiny = load_config(kSource / "models/tiny-v41");
  EXPECT_EQ(tiny.num_layers, 8);
  EXPECT_EQ(tiny.kv_source_of(5), 4);
  EXPECT_EQ(tiny.kv_source_of(1), -1);
  EXPECT_TRUE(tiny.is_index_source(7));
  EXPECT_FALSE(tiny.is_kv_source(7));
  EXPECT_EQ(tiny.engram_index(4), 1);
  EXPECT_EQ(tiny.engram_index(2), -1);
  EXPECT_EQ(load_config(kSource / "tests/data/nano-d").rope_scaling.factor, 8);
}

TEST(Config, WritesWhatItReads) {
  for (const char* preset : {"nano", "mini", "flash-slice", "flash"}) {
    SCOPED_TRACE(preset);
    const ModelConfig config = preset_config(preset, {});
    EXPECT_TRUE(load_text(to_json(config)) == config);
  }
}

TEST(Config, FlatFormEqualsNestedForm) {
  EXPECT_TRUE(load_text(flat_release().dump()) == release_config());
}

TEST(Config, ReleaseHasPublishedScheduleAndPrimes) {
  const ModelConfig release = release_config();
  EXPECT_EQ(release.kv_source_layers, (std::vector<int32_t>{2, 8, 14, 20}));
  EXPECT_EQ(release.index_source_layers, (std::vector<int32_t>{2, 8, 14, 20, 24, 28, 32, 36}));
  EXPECT_EQ(release.candidate_source_layer, 20);
  EXPECT_EQ(release.engram_layers, (std::vector<int32_t>{1, 14}));
  EXPECT_EQ(release.engram_num_embeddings, (std::vector<int64_t>{384006168, 384016682}));
  EXPECT_EQ(release.dspark_target_layers, (std::vector<int32_t>{37, 38, 39}));
  const auto primes = engram_primes(release);
  EXPECT_EQ(primes[0].front(), 16000057);
  EXPECT_EQ(primes[0][23], 16000463);
  EXPECT_EQ(primes[1][8], 16000667);
}

TEST(Config, PadsRatiosOfDraftStages) {
  Json root = parse_json(to_json(release_config()), "release");
  Json& ratios = root["text_config"]["compress_ratios"];
  ratios.get_ref<Json::array_t&>().resize(40);
  EXPECT_TRUE(load_text(root.dump()) == release_config());
}

TEST(Config, EveryLayerCountGivesAValidSchedule) {
  for (int64_t layers = 1; layers <= 64; ++layers) {
    SCOPED_TRACE(layers);
    EXPECT_EQ(error_of(to_json(preset_config("nano", {.layers = layers}))), "accepted");
  }
}

TEST(Config, RefusesUnknownPresetAndWildOverrides) {
  EXPECT_THROW(preset_config("large", {}), Error);
  EXPECT_THROW(preset_config("nano", {.layers = 0}), Error);
  EXPECT_THROW(preset_config("nano", {.experts = 1'000'000}), Error);
  EXPECT_THROW(preset_config("nano", {.vocab_size = -1}), Error);
}

struct Refusal {
  const char* pointer;  // JSON pointer of the value to replace
  const char* value;    // JSON text; "" removes the key
  const char* message;  // part of the error
};

class ConfigRefusal : public testing::TestWithParam<Refusal> {};

TEST_P(ConfigRefusal, NamesKeyAndValue) {
  const Refusal& refusal = GetParam();
  Json root = parse_json(to_json(preset_config("nano", {})), "nano");
  const Json::json_pointer pointer{std::string(refusal.pointer)};
  if (*refusal.value == '\0') {
    root[pointer.parent_pointer()].erase(pointer.back());
  } else {
    root[pointer] = Json::parse(refusal.value);
  }
  const std::string error = error_of(root.dump());
  EXPECT_NE(error.find(refusal.message), std::string::npos) << error;
}

INSTANTIATE_TEST_SUITE_P(
    Values, ConfigRefusal,
    testing::Values(
        Refusal{"/model_type", "\"deepseek_v4\"",
                "model_type is \"deepseek_v4\"; it must be \"deepseek_v41\""},
        Refusal{"/model_type", "", "model_type is missing"},
        Refusal{"/dtype", "\"fp8\"", "dtype is \"fp8\"; it must be \"bfloat16\""},
        Refusal{"/text_config", "", "text_config is missing"},
        Refusal{"/text_config", "[]", "must be an object"},
        Refusal{"/quantization_config", "", "quantization_config is missing"},
        Refusal{"/quantization_config/weight_block_size", "[128,128]", "it must be [32, 32]"},
        Refusal{"/quantization_config/expert_dtype", "\"nvfp4\"", "must be \"fp4\""},
        Refusal{"/quantization_config/scale_fmt", "\"f32\"", "must be \"ue8m0\""},
        Refusal{"/text_config/model_type", "\"other\"", "text_config.model_type"},
        Refusal{"/text_config/vocab_size", "", "text_config.vocab_size is missing"},
        Refusal{"/text_config/vocab_size", "0", "from 1 to"},
        Refusal{"/text_config/vocab_size", "\"512\"", "must be a whole number"},
        Refusal{"/text_config/vocab_size", "512.5", "must be a whole number"},
        Refusal{"/text_config/vocab_size", "18446744073709551615", "must be a whole number"},
        Refusal{"/text_config/vocab_size", "-9223372036854775808", "must be a whole number"},
        Refusal{"/text_config/vocab_size", "1e300", "must be a whole number"},
        Refusal{"/text_config/hidden_size", "144", "multiple of 32, but hidden_size is 144"},
        Refusal{"/text_config/hidden_size", "1073741824", "hidden_size is 1073741824"},
        Refusal{"/text_config/num_hidden_layers", "13", "compress_ratios has 12 entries"},
        Refusal{"/text_config/num_hidden_layers", "100000", "from 1 to 512"},
        Refusal{"/text_config/num_key_value_heads", "2", "from 1 to 1"},
        Refusal{"/text_config/head_dim", "500", "head_dim is 500"},
        Refusal{"/text_config/qk_rope_head_dim", "63", "is even"},
        Refusal{"/text_config/qk_rope_head_dim", "256", "fits head_dim and index_head_dim"},
        Refusal{"/text_config/o_groups", "3", "o_groups divides"},
        Refusal{"/text_config/sliding_window", "0", "sliding_window is 0"},
        Refusal{"/text_config/rms_norm_eps", "-1", "rms_norm_eps is -1"},
        Refusal{"/text_config/attention_bias", "true", "it must be false"},
        Refusal{"/text_config/tie_word_embeddings", "true", "it must be false"},
        Refusal{"/text_config/compress_ratios/3", "3", "compress_ratios"},
        Refusal{"/text_config/compress_ratios/3", "0.5", "compress_ratios"},
        Refusal{"/text_config/compress_ratios/3", "1",
                "layer 3 has ratio 1 and its source 2 has 2"},
        Refusal{"/text_config/compress_ratios/11", "1", "compress_ratios of draft stages are 0"},
        Refusal{"/text_config/kv_source_layer_ids", "[2]", "layer 5 has ratio 1 and its source 2"},
        Refusal{"/text_config/kv_source_layer_ids", "[3,5]", "every KV source is an index source"},
        Refusal{"/text_config/kv_source_layer_ids", "[5,2]", "kv_source_layer_ids ascend"},
        Refusal{"/text_config/kv_source_layer_ids", "[5]", "layer 2 has none"},
        Refusal{"/text_config/kv_source_layer_ids", "[2,99]", "from 0 to 9"},
        Refusal{"/text_config/index_source_layer_ids", "[2,5,5]", "index_source_layer_ids ascend"},
        Refusal{"/text_config/index_source_layer_ids", "[0,2,5]", "that of layer 0 is 0"},
        Refusal{"/text_config/candidate_source_layer_id", "6",
                "the candidate source is an index source"},
        Refusal{"/text_config/candidate_source_layer_id", "2", "no KV source after it"},
        Refusal{"/text_config/candidate_block_size", "0", "candidate_block_size is 0"},
        Refusal{"/text_config/index_topk", "0", "index_topk is 0"},
        Refusal{"/text_config/rope_scaling/rope_type", "\"linear\"", "must be \"yarn\""},
        Refusal{"/text_config/rope_scaling/factor", "0", "rope_scaling.factor is 0"},
        Refusal{"/text_config/rope_scaling/beta_slow", "64", "beta_fast exceeds beta_slow"},
        Refusal{"/text_config/rope_theta", "1", "rope_theta is 1"},
        Refusal{"/text_config/moe_intermediate_size", "65", "moe_intermediate_size is 65"},
        Refusal{"/text_config/num_experts_per_tok", "9", "num_experts_per_tok is at most"},
        Refusal{"/text_config/scoring_func", "\"tanh\"", "scoring_func"},
        Refusal{"/text_config/norm_topk_prob", "1", "must be true or false"},
        Refusal{"/text_config/hc_mult", "9", "hc_mult is 9"},
        Refusal{"/text_config/hc_mult", "0", "hc_mult is 0"},
        Refusal{"/text_config/hc_sinkhorn_iters", "0", "hc_sinkhorn_iters is 0"},
        Refusal{"/text_config/engram_layer_ids", "[1,1]", "engram_layer_ids"},
        Refusal{"/text_config/engram_num_embeddings", "[1362]", "one entry per Engram layer"},
        Refusal{"/text_config/engram_num_embeddings/1", "1553", "add up to 1552, not 1553"},
        Refusal{"/text_config/engram_head_dim", "48", "engram_head_dim is 48"},
        Refusal{"/text_config/engram_compressed_vocab_size", "513",
                "engram_compressed_vocab_size is 513"},
        Refusal{"/text_config/engram_pad_token_id", "512", "engram_pad_token_id is 512"},
        Refusal{"/text_config/engram_pad_id", "3", "contradicts"},
        Refusal{"/text_config/dspark_block_size", "8", "dspark_block_size is 8"},
        Refusal{"/text_config/dspark_noise_token_id", "512", "dspark_noise_token_id is 512"},
        Refusal{"/text_config/dspark_target_layer_ids", "[]", "dspark_target_layer_ids ascend"},
        Refusal{"/text_config/dspark_num_experts_per_tok", "5",
                "dspark_num_experts_per_tok is at most"},
        Refusal{"/num_hash_layers", "3", "DeepSeek-V4"},
        Refusal{"/eos_token_id", "512", "eos_token_id is 512"},
        Refusal{"/vision_config", "{}", "vision_config.num_hidden_layers is missing"},
        Refusal{"/vision_config", "7", "must be an object"}));

TEST(Config, RefusesFlatFilesOfOtherFormats) {
  Json flat = flat_release();
  flat["dtype"] = "bfloat16";
  EXPECT_NE(error_of(flat.dump()).find("dtype is \"bfloat16\"; it must be \"fp8\""),
            std::string::npos);
  flat = flat_release();
  flat["n_hash_layers"] = 3;
  EXPECT_NE(error_of(flat.dump()).find("DeepSeek-V4"), std::string::npos);
  flat = flat_release();
  flat.erase("kv_source_layers");
  EXPECT_NE(error_of(flat.dump()).find("kv_source_layers is missing"), std::string::npos);
}

TEST(Config, RefusesWhatIsNotAConfiguration) {
  EXPECT_NE(error_of("").find("not valid JSON"), std::string::npos);
  EXPECT_NE(error_of("[]").find("must be a JSON object"), std::string::npos);
  EXPECT_NE(error_of("{}").find("model_type is missing"), std::string::npos);
  EXPECT_NE(error_of(std::string(100'000, '[')).find("nested deeper"), std::string::npos);
  EXPECT_THROW(load_config("/nonexistent"), Error);
}

TEST(Config, SurvivesRandomMutations) {
  const std::string good = to_json(preset_config("nano", {}));
  int accepted = 0;
  for (uint32_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    std::string text = good;
    for (uint32_t i = 0; i <= seed % 3; ++i)
      text[random() % text.size()] = "0123456789-.e[]{}\",:nt"[random() % 22];
    try {
      load_text(text);
      ++accepted;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidFile) << error.what();
    }
  }
  EXPECT_GT(accepted, 0);
}

}  // namespace
}  // namespace deepinfer::checkpoint
