#include "checkpoint/config.h"

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"

namespace deepinfer::checkpoint {
namespace {

constexpr int64_t kMaxConfigBytes = int64_t{1} << 20;
constexpr int kMaxConfigDepth = 8;

/// The spellings of one field: in the nested file (relative to its object) and in the flat file.
/// nullptr: the form does not have the field.
struct Key {
  const char* nested;
  const char* flat;
};

template <typename T>
struct Range {
  T min;
  T max;
};

/// One object of a configuration file, read by either spelling.
class Fields {
 public:
  Fields(const Json& object, bool flat, std::string prefix, std::string_view source)
      : object_(object), flat_(flat), prefix_(std::move(prefix)), source_(source) {}

  bool flat() const { return flat_; }

  /// The value, or nullptr if the key is absent or null.
  const Json* find(const Key& key) const {
    const char* const name = flat_ ? key.flat : key.nested;
    if (name == nullptr) return nullptr;
    const auto found = object_.find(name);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }
  std::string name(const Key& key) const { return prefix_ + (flat_ ? key.flat : key.nested); }

  [[noreturn]] void refuse(const Key& key, std::string_view what) const {
    const Json* const value = find(key);
    std::string shown = value == nullptr ? "missing" : value->dump(-1, ' ', true);
    if (shown.size() > 80) shown = shown.substr(0, 77) + "...";
    fail(ErrorCode::kInvalidFile, "{}: {} is {}; {}", source_, name(key), shown, what);
  }

  int64_t integer(const Key& key, Range<int64_t> range,
                  std::optional<int64_t> fallback = std::nullopt) const {
    const Json* const value = find(key);
    if (value == nullptr && fallback) return *fallback;
    if (value == nullptr || !value->is_number() || !in_range(*value, range)) {
      refuse(key, fmt::format("it must be a whole number from {} to {}", range.min, range.max));
    }
    return value->get<int64_t>();
  }

  double number(const Key& key, Range<double> range,
                std::optional<double> fallback = std::nullopt) const {
    const Json* const value = find(key);
    if (value == nullptr && fallback) return *fallback;
    if (value == nullptr || !value->is_number() || value->get<double>() < range.min ||
        value->get<double>() > range.max) {
      refuse(key, fmt::format("it must be a number from {} to {}", range.min, range.max));
    }
    return value->get<double>();
  }

  bool boolean(const Key& key, bool fallback) const {
    const Json* const value = find(key);
    if (value == nullptr) return fallback;
    if (!value->is_boolean()) refuse(key, "it must be true or false");
    return value->get<bool>();
  }

  /// A list of at most `max_size` integers.
  template <typename T>
  std::vector<T> integers(const Key& key, Range<int64_t> range, size_t max_size) const {
    const Json* const value = find(key);
    const bool valid = value != nullptr && value->is_array() && value->size() <= max_size &&
                       std::ranges::all_of(*value, [&](const Json& item) {
                         return item.is_number() && in_range(item, range);
                       });
    if (!valid) {
      refuse(key, fmt::format("it must be a list of at most {} whole numbers from {} to {}",
                              max_size, range.min, range.max));
    }
    std::vector<T> result;
    for (const Json& item : *value) result.push_back(item.get<T>());
    return result;
  }

  /// Refuses a value that is present but none of `allowed`; returns the value or "".
  std::string one_of(const Key& key, std::initializer_list<std::string_view> allowed) const {
    const Json* const value = find(key);
    if (value == nullptr) return "";
    if (!value->is_string() ||
        std::ranges::find(allowed, value->get<std::string>()) == allowed.end()) {
      std::string list;
      for (const std::string_view item : allowed)
        list += fmt::format("{}\"{}\"", list.empty() ? "" : " or ", item);
      refuse(key, fmt::format("it must be {}", list));
    }
    return value->get<std::string>();
  }

  /// The nested object of that key, or nullptr.
  const Json* object(const Key& key) const {
    const Json* const value = find(key);
    if (value != nullptr && !value->is_object()) refuse(key, "it must be an object");
    return value;
  }

 private:
  /// Whole numbers only: 10000.0 is accepted (writers differ), 0.5 and 1e30 are not.
  static bool in_range(const Json& value, Range<int64_t> range) {
    if (value.is_number_unsigned() &&
        value.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return false;
    }
    if (value.is_number_float()) {
      const double number = value.get<double>();
      if (!(number >= -9e15 && number <= 9e15) ||
          number != static_cast<double>(static_cast<int64_t>(number))) {
        return false;
      }
    }
    const auto number = value.get<int64_t>();
    return number >= range.min && number <= range.max;
  }

  const Json& object_;
  bool flat_;
  std::string prefix_;
  std::string_view source_;
};

// Limits that keep every size computed from a configuration far below 2^63, and hostile files from
// asking for much work. All are at least ten times what the release uses.
constexpr Range<int64_t> kWidth = {1, 1 << 17};
constexpr Range<int64_t> kCount = {1, 4096};
constexpr int64_t kMaxLayers = 512;
constexpr int64_t kMaxDraftStages = 8;
constexpr int64_t kMaxEngramLayers = 16;
constexpr int64_t kMaxTokens = int64_t{1} << 30;
constexpr Range<double> kPositive = {1e-6, 1e6};
constexpr Range<double> kEpsilon = {0, 0.1};

void read_attention(const Fields& fields, ModelConfig& config) {
  config.num_heads = fields.integer({"num_attention_heads", "n_heads"}, kCount);
  fields.integer({"num_key_value_heads", nullptr}, {1, 1}, 1);
  config.head_dim = fields.integer({"head_dim", "head_dim"}, {2, 4096});
  config.rope_head_dim = fields.integer({"qk_rope_head_dim", "rope_head_dim"}, {2, 4096});
  config.q_lora_rank = fields.integer({"q_lora_rank", "q_lora_rank"}, kWidth);
  config.o_groups = fields.integer({"o_groups", "o_groups"}, kCount);
  config.o_lora_rank = fields.integer({"o_lora_rank", "o_lora_rank"}, kWidth);
  config.window = fields.integer({"sliding_window", "window_size"}, {1, 1 << 16});
  config.rms_eps = static_cast<float>(fields.number({"rms_norm_eps", "norm_eps"}, kEpsilon));
  if (fields.boolean({"attention_bias", nullptr}, false)) {
    fields.refuse({"attention_bias", nullptr}, "it must be false");
  }
  if (fields.boolean({"tie_word_embeddings", nullptr}, false)) {
    fields.refuse({"tie_word_embeddings", nullptr}, "it must be false");
  }
}

void read_sparse_index(const Fields& fields, ModelConfig& config) {
  const auto max_entries = static_cast<size_t>(kMaxLayers + kMaxDraftStages);
  const Range<int64_t> layer = {0, config.num_layers - 1};
  config.compress_ratios =
      fields.integers<int32_t>({"compress_ratios", "compress_ratios"}, {0, 2}, max_entries);
  config.kv_source_layers =
      fields.integers<int32_t>({"kv_source_layer_ids", "kv_source_layers"}, layer, max_entries);
  config.index_source_layers = fields.integers<int32_t>(
      {"index_source_layer_ids", "index_source_layers"}, layer, max_entries);
  config.index_num_heads = fields.integer({"index_n_heads", "index_n_heads"}, kCount);
  config.index_head_dim = fields.integer({"index_head_dim", "index_head_dim"}, {2, 4096});
  config.index_topk = fields.integer({"index_topk", "index_topk"}, {1, 1 << 20});
  config.candidate_source_layer = static_cast<int32_t>(fields.integer(
      {"candidate_source_layer_id", "candidate_source_layer"}, {-1, config.num_layers - 1}, -1));
  config.candidate_topk_blocks =
      fields.integer({"candidate_topk_blocks", "candidate_topk_blocks"}, {1, 1 << 20}, 2048);
  config.candidate_block_size =
      fields.integer({"candidate_block_size", "candidate_block_size"}, {1, 1 << 16}, 8);
}

void read_rope(const Fields& fields, std::string_view source, ModelConfig& config) {
  constexpr Range<double> kBase = {1.5, 1e12};
  config.rope_theta = fields.number({"rope_theta", "rope_theta"}, kBase);
  config.compress_rope_theta = fields.number({"compress_rope_theta", "compress_rope_theta"}, kBase);
  RopeScaling& scaling = config.rope_scaling;
  const auto read = [&](const Fields& yarn) {
    scaling.factor = yarn.number({"factor", "rope_factor"}, {1, 1e4});
    scaling.beta_fast = yarn.number({"beta_fast", "beta_fast"}, kPositive, 32);
    scaling.beta_slow = yarn.number({"beta_slow", "beta_slow"}, kPositive, 1);
    scaling.original_max_positions =
        yarn.integer({"original_max_position_embeddings", "original_seq_len"}, {1, kMaxTokens});
  };
  if (fields.flat()) {
    read(fields);
    const double reach = scaling.factor * static_cast<double>(scaling.original_max_positions);
    config.max_positions = static_cast<int64_t>(std::min(reach, static_cast<double>(kMaxTokens)));
    return;
  }
  config.max_positions = fields.integer({"max_position_embeddings", nullptr}, {1, kMaxTokens});
  const Json* const object = fields.object({"rope_scaling", nullptr});
  if (object == nullptr) return;
  const Fields yarn(*object, false, "text_config.rope_scaling.", source);
  yarn.one_of({"rope_type", nullptr}, {"yarn"});
  yarn.one_of({"type", nullptr}, {"yarn"});
  read(yarn);
}

void read_experts(const Fields& fields, ModelConfig& config) {
  config.moe_intermediate_size = fields.integer({"moe_intermediate_size", "moe_inter_dim"}, kWidth);
  config.num_experts = fields.integer({"n_routed_experts", "n_routed_experts"}, kCount);
  fields.integer({"n_shared_experts", "n_shared_experts"}, {1, 1}, 1);
  config.experts_per_token = fields.integer({"num_experts_per_tok", "n_activated_experts"}, kCount);
  const std::string scoring =
      fields.one_of({"scoring_func", "score_func"}, {"sqrtsoftplus", "softmax", "sigmoid"});
  if (scoring == "softmax") config.scoring = ScoringFunction::kSoftmax;
  if (scoring == "sigmoid") config.scoring = ScoringFunction::kSigmoid;
  fields.one_of({"topk_method", nullptr}, {"noaux_tc"});
  fields.one_of({"hidden_act", nullptr}, {"silu"});
  config.normalize_topk = fields.boolean({"norm_topk_prob", nullptr}, true);
  config.routed_scaling_factor =
      static_cast<float>(fields.number({"routed_scaling_factor", "route_scale"}, kPositive));
  config.swiglu_limit =
      static_cast<float>(fields.number({"swiglu_limit", "swiglu_limit"}, {0, 1e6}, 0));
  config.gate_temperature =
      static_cast<float>(fields.number({"gate_temp", "gate_temp"}, kPositive, 1));
}

void read_streams(const Fields& fields, ModelConfig& config) {
  config.hc_mult = fields.integer({"hc_mult", "hc_mult"}, {1, 8});
  config.hc_sinkhorn_iterations =
      fields.integer({"hc_sinkhorn_iters", "hc_sinkhorn_iters"}, {1, 1000});
  config.hc_eps = static_cast<float>(fields.number({"hc_eps", "hc_eps"}, kEpsilon));
}

void read_engram(const Fields& fields, ModelConfig& config) {
  const Key layers = {"engram_layer_ids", "engram_layer_ids"};
  if (fields.find(layers) == nullptr) return;
  config.engram_layers =
      fields.integers<int32_t>(layers, {0, config.num_layers - 1}, kMaxEngramLayers);
  if (config.engram_layers.empty()) return;
  config.engram_num_embeddings = fields.integers<int64_t>(
      {"engram_num_embeddings", "engram_num_embeddings"}, {1, int64_t{1} << 36}, kMaxEngramLayers);
  config.engram_max_ngram =
      fields.integer({"engram_max_ngram_size", "engram_max_ngram_size"}, {2, 8});
  config.engram_vocab_size =
      fields.integer({"engram_vocab_size", "engram_vocab_size"}, {2, int64_t{1} << 28});
  config.engram_num_heads = fields.integer({"engram_n_heads", "engram_n_heads"}, {1, 32});
  config.engram_head_dim = fields.integer({"engram_head_dim", "engram_head_dim"}, {1, 4096});
  config.engram_compressed_vocab_size = fields.integer(
      {"engram_compressed_vocab_size", "engram_compressed_vocab_size"}, {1, config.vocab_size});
  // The shipped nested file says engram_pad_token_id, some exports and the flat file engram_pad_id.
  const Range<int64_t> token = {0, config.vocab_size - 1};
  const Key short_key = {"engram_pad_id", "engram_pad_id"};
  const Key long_key = {"engram_pad_token_id", "engram_pad_token_id"};
  const bool has_long = fields.find(long_key) != nullptr;
  config.engram_pad_token_id = static_cast<int32_t>(
      fields.integer(has_long ? long_key : short_key, token, std::min<int64_t>(2, token.max)));
  if (has_long &&
      fields.integer(short_key, token, config.engram_pad_token_id) != config.engram_pad_token_id) {
    fields.refuse(short_key, "it contradicts engram_pad_token_id");
  }
}

void read_draft(const Fields& fields, ModelConfig& config) {
  config.num_draft_stages =
      fields.integer({"num_nextn_predict_layers", "n_mtp_layers"}, {0, kMaxDraftStages}, 0);
  if (config.num_draft_stages == 0) return;
  // A ring of W + 16 rows holds two verifications of one anchor and a block of drafts.
  config.dspark_block_size = fields.integer({"dspark_block_size", "dspark_block_size"}, {1, 7});
  config.dspark_noise_token_id = static_cast<int32_t>(fields.integer(
      {"dspark_noise_token_id", "dspark_noise_token_id"}, {0, config.vocab_size - 1}));
  config.dspark_target_layers = fields.integers<int32_t>(
      {"dspark_target_layer_ids", "dspark_target_layer_ids"}, {0, config.num_layers - 1}, 16);
  config.dspark_markov_rank = fields.integer({"dspark_markov_rank", "dspark_markov_rank"}, kWidth);
  config.dspark_num_experts =
      fields.integer({"dspark_n_routed_experts", "dspark_n_routed_experts"}, kCount);
  config.dspark_experts_per_token =
      fields.integer({"dspark_num_experts_per_tok", "dspark_n_activated_experts"}, kCount);
}

void read_vision(const Fields& fields, ModelConfig& config) {
  VisionConfig vision;
  vision.num_layers = fields.integer({"num_hidden_layers", "vision_n_layers"}, {1, kMaxLayers});
  vision.hidden_size = fields.integer({"hidden_size", "vision_dim"}, kWidth);
  vision.num_heads = fields.integer({"num_attention_heads", "vision_n_heads"}, kCount);
  vision.intermediate_size = fields.integer({"intermediate_size", "vision_inter_dim"}, kWidth);
  vision.patch_size = fields.integer({"patch_size", "vision_patch_size"}, {1, 256});
  vision.rope_theta = fields.number({"rope_theta", "vision_rope_theta"}, {1.5, 1e12}, 10000);
  vision.downsample_ratio =
      fields.integer({"downsample_ratio", "vision_downsample_ratio"}, {1, 16});
  vision.max_image_tokens =
      fields.integer({"max_image_tokens", "vision_max_n_token"}, {4, 1 << 20});
  vision.min_pixels = fields.integer({"min_pixels", "vision_min_pixels"}, {1, int64_t{1} << 32});
  const Key ratio = {"max_wh_ratio", "vision_max_wh_ratio"};
  if (fields.find(ratio) != nullptr) vision.max_wh_ratio = fields.number(ratio, {1, 1e6});
  config.vision = vision;
}

void read_token_ids(const Fields& fields, ModelConfig& config) {
  // The flat file does not name the three special tokens: they are the tokenizer's first ids.
  const auto read = [&](const char* key, int64_t fallback) {
    return static_cast<int32_t>(
        fields.integer({key, key}, {-1, config.vocab_size - 1}, fields.flat() ? fallback : -1));
  };
  const int64_t last = config.vocab_size - 1;
  config.bos_token_id = read("bos_token_id", 0);
  config.eos_token_id = read("eos_token_id", std::min<int64_t>(1, last));
  config.pad_token_id = read("pad_token_id", std::min<int64_t>(2, last));
  config.image_token_id = read("image_token_id", -1);
}

/// The number formats that the loader knows, as either file states them.
void check_formats(const Json& root, const Fields& top, std::string_view source) {
  if (top.flat()) {
    // "dtype" is the quantisation format here, but the storage type of unquantised tensors in the
    // nested file.
    top.one_of({nullptr, "dtype"}, {"fp8"});
    top.one_of({nullptr, "expert_dtype"}, {"fp4"});
    top.one_of({nullptr, "scale_fmt"}, {"ue8m0"});
    return;
  }
  top.one_of({"dtype", nullptr}, {"bfloat16"});
  top.one_of({"torch_dtype", nullptr}, {"bfloat16"});
  const Key key = {"quantization_config", nullptr};
  if (top.object(key) == nullptr) top.refuse(key, "it must describe the fp8 format of the release");
  const Fields format(root["quantization_config"], false, "quantization_config.", source);
  format.one_of({"quant_method", nullptr}, {"fp8"});
  format.one_of({"activation_scheme", nullptr}, {"dynamic"});
  format.one_of({"scale_fmt", nullptr}, {"ue8m0"});
  format.one_of({"expert_dtype", nullptr}, {"fp4"});
  const Key block = {"weight_block_size", nullptr};
  if (format.integers<int64_t>(block, {1, 1 << 16}, 2) != std::vector<int64_t>{32, 32}) {
    format.refuse(block, "it must be [32, 32]");
  }
}

/// Refuses other models, DeepSeek-V4 above all, whose files look alike.
void check_model_type(const Fields& top, const Json& root, std::string_view source) {
  if (!top.flat()) {
    if (top.find({"model_type", nullptr}) == nullptr)
      top.refuse({"model_type", nullptr}, "it must be \"deepseek_v41\"");
    top.one_of({"model_type", nullptr}, {"deepseek_v41"});
  }
  if (root.contains("n_hash_layers") || root.contains("num_hash_layers")) {
    fail(ErrorCode::kInvalidFile,
         "{}: describes DeepSeek-V4 (hash-routed layers); only DeepSeek-V4.1 is supported", source);
  }
}

}  // namespace

ModelConfig parse_config(std::string_view text, std::string_view source) {
  const Json root = parse_json(text, source, kMaxConfigDepth);
  if (!root.is_object()) fail(ErrorCode::kInvalidFile, "{}: must be a JSON object", source);
  const bool flat = !root.contains("text_config") && root.contains("dim");
  const Fields top(root, flat, "", source);
  check_model_type(top, root, source);
  check_formats(root, top, source);
  if (!flat && top.object({"text_config", nullptr}) == nullptr) {
    top.refuse({"text_config", nullptr}, "it must be an object with the text model's values");
  }
  const Fields fields(flat ? root : root["text_config"], flat, flat ? "" : "text_config.", source);
  if (!flat) fields.one_of({"model_type", nullptr}, {"deepseek_v41_text"});

  ModelConfig config;
  config.vocab_size = fields.integer({"vocab_size", "vocab_size"}, {1, 1 << 24});
  config.hidden_size = fields.integer({"hidden_size", "dim"}, kWidth);
  config.num_layers = fields.integer({"num_hidden_layers", "n_layers"}, {1, kMaxLayers});
  read_attention(fields, config);
  read_sparse_index(fields, config);
  read_rope(fields, source, config);
  read_experts(fields, config);
  read_streams(fields, config);
  read_engram(fields, config);
  read_draft(fields, config);
  read_token_ids(top, config);
  if (flat && top.integer({nullptr, "vision_n_layers"}, {0, kMaxLayers}, 0) > 0)
    read_vision(top, config);
  if (const Json* const vision = flat ? nullptr : top.object({"vision_config", nullptr})) {
    read_vision(Fields(*vision, false, "vision_config.", source), config);
  }

  // Files exist that list the backbone's layers only: the draft stages' entries are 0 by
  // definition.
  const auto layers = static_cast<size_t>(config.num_layers);
  const size_t all = layers + static_cast<size_t>(config.num_draft_stages);
  if (config.compress_ratios.size() < layers || config.compress_ratios.size() > all) {
    fail(
        ErrorCode::kInvalidFile,
        "{}: compress_ratios has {} entries; there must be {} to {}, one per layer and draft stage",
        source, config.compress_ratios.size(), layers, all);
  }
  config.compress_ratios.resize(all, 0);
  return config;
}

ModelConfig load_config(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / "config.json";
  ModelConfig config = parse_config(read_file(path, kMaxConfigBytes), path.string());
  for (const CheckResult& check : check_config(config)) {
    if (check.outcome == CheckOutcome::kFail) {
      fail(ErrorCode::kInvalidFile, "{}: inconsistent: {} must hold, but {}", path.string(),
           check.name, check.detail);
    }
  }
  return config;
}

}  // namespace deepinfer::checkpoint
