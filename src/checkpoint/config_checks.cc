#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "checkpoint/config.h"

namespace deepinfer::checkpoint {
namespace {

constexpr int64_t kBlock = 32;  // channels and rows that share a scale

/// The last element of ascending `layers` at or before `layer`, or -1.
int32_t last_at_or_before(const std::vector<int32_t>& layers, int64_t layer) {
  int32_t result = -1;
  for (const int32_t candidate : layers) {
    if (candidate <= layer) result = std::max(result, candidate);
  }
  return result;
}

bool contains(const std::vector<int32_t>& layers, int32_t layer) {
  return std::ranges::find(layers, layer) != layers.end();
}

bool strictly_ascending(const std::vector<int32_t>& layers) {
  return std::ranges::adjacent_find(layers, std::greater_equal<>()) == layers.end();
}

/// Collects results; `problem` is empty if the check holds.
class Report {
 public:
  void add(std::string name, std::string problem) {
    const CheckOutcome outcome = problem.empty() ? CheckOutcome::kPass : CheckOutcome::kFail;
    results_.push_back({std::move(name), outcome, std::move(problem)});
  }
  void skip(std::string name, std::string why) {
    results_.push_back({std::move(name), CheckOutcome::kNotApplicable, std::move(why)});
  }
  std::vector<CheckResult> take() { return std::move(results_); }

 private:
  std::vector<CheckResult> results_;
};

std::string unless(bool holds, std::string problem) {
  return holds ? "" : std::move(problem);
}

void check_dimensions(const ModelConfig& c, Report& report) {
  struct Dimension {
    const char* name;
    int64_t value;
  };
  std::vector<Dimension> dimensions = {
      {"hidden_size", c.hidden_size},       {"head_dim", c.head_dim},
      {"q_lora_rank", c.q_lora_rank},       {"o_lora_rank", c.o_lora_rank},
      {"index_head_dim", c.index_head_dim}, {"moe_intermediate_size", c.moe_intermediate_size}};
  if (!c.engram_layers.empty()) dimensions.push_back({"engram_head_dim", c.engram_head_dim});
  std::string problem;
  for (const auto& [name, value] : dimensions) {
    if (value % kBlock != 0 && problem.empty()) problem = fmt::format("{} is {}", name, value);
  }
  report.add("every quantised dimension is a multiple of 32", problem);

  report.add("o_groups divides num_attention_heads",
             unless(c.num_heads % c.o_groups == 0,
                    fmt::format("{} heads, {} groups", c.num_heads, c.o_groups)));
  const bool rotates =
      c.rope_head_dim % 2 == 0 && c.rope_head_dim <= std::min(c.head_dim, c.index_head_dim);
  report.add("qk_rope_head_dim is even and fits head_dim and index_head_dim",
             unless(rotates, fmt::format("it is {}, head_dim {}, index_head_dim {}",
                                         c.rope_head_dim, c.head_dim, c.index_head_dim)));
  report.add("num_experts_per_tok is at most n_routed_experts",
             unless(c.experts_per_token <= c.num_experts,
                    fmt::format("{} of {} are chosen", c.experts_per_token, c.num_experts)));
  const RopeScaling& yarn = c.rope_scaling;
  report.add("beta_fast exceeds beta_slow",
             unless(yarn.beta_fast > yarn.beta_slow,
                    fmt::format("they are {} and {}", yarn.beta_fast, yarn.beta_slow)));
}

void check_sources(const ModelConfig& c, Report& report) {
  report.add("kv_source_layer_ids ascend", unless(strictly_ascending(c.kv_source_layers),
                                                  fmt::format("they are {}", c.kv_source_layers)));
  report.add("index_source_layer_ids ascend",
             unless(strictly_ascending(c.index_source_layers),
                    fmt::format("they are {}", c.index_source_layers)));

  std::string problem;
  for (const int32_t layer : c.kv_source_layers) {
    if (!contains(c.index_source_layers, layer)) problem = fmt::format("layer {} is not", layer);
  }
  report.add("every KV source is an index source", problem);

  problem.clear();
  for (const std::vector<int32_t>* const list : {&c.kv_source_layers, &c.index_source_layers}) {
    for (const int32_t layer : *list) {
      if (c.ratio(layer) == 0) problem = fmt::format("that of layer {} is 0", layer);
    }
  }
  report.add("every source has a compress ratio above 0", problem);

  problem.clear();
  for (int64_t layer = c.num_layers - 1; layer >= 0; --layer) {
    const int32_t source = c.kv_source_of(layer);
    if (c.ratio(layer) == 0) continue;
    if (source < 0 || c.index_source_of(layer) < 0) {
      problem = fmt::format("layer {} has none", layer);
    } else if (c.ratio(source) != c.ratio(layer)) {
      problem = fmt::format("layer {} has ratio {} and its source {} has {}", layer, c.ratio(layer),
                            source, c.ratio(source));
    }
  }
  report.add(
      "every layer with a ratio above 0 has a KV source of that ratio and an index source at or "
      "before it",
      problem);

  problem.clear();
  for (int64_t stage = 0; stage < c.num_draft_stages; ++stage) {
    if (c.ratio(c.num_layers + stage) != 0) problem = fmt::format("that of stage {} is not", stage);
  }
  report.add("compress_ratios of draft stages are 0", problem);

  constexpr const char* kCandidate =
      "the candidate source is an index source with no KV source after it";
  if (c.candidate_source_layer < 0) {
    report.skip(kCandidate, "there is no candidate level");
    return;
  }
  const bool is_source = contains(c.index_source_layers, c.candidate_source_layer);
  // The candidate mask numbers the entries of one cache.
  const bool is_last =
      c.kv_source_layers.empty() || c.kv_source_layers.back() <= c.candidate_source_layer;
  report.add(kCandidate, unless(is_source && is_last,
                                fmt::format("it is layer {}, index sources are {}, KV sources {}",
                                            c.candidate_source_layer, c.index_source_layers,
                                            c.kv_source_layers)));
}

void check_engram(const ModelConfig& c, Report& report) {
  constexpr const char* kSum = "the primes of each Engram layer add up to engram_num_embeddings";
  if (c.engram_layers.empty()) {
    report.skip(kSum, "there is no Engram layer");
    return;
  }
  report.add("engram_layer_ids ascend", unless(strictly_ascending(c.engram_layers),
                                               fmt::format("they are {}", c.engram_layers)));
  const bool same_size = c.engram_num_embeddings.size() == c.engram_layers.size();
  report.add(
      "engram_num_embeddings has one entry per Engram layer",
      unless(same_size, fmt::format("it has {} for {} layers", c.engram_num_embeddings.size(),
                                    c.engram_layers.size())));
  if (!same_size) return;
  const std::vector<std::vector<int64_t>> primes = engram_primes(c);
  std::string problem;
  for (size_t i = 0; i < primes.size(); ++i) {
    int64_t sum = 0;
    for (const int64_t prime : primes[i]) sum += prime;
    if (sum != c.engram_num_embeddings[i]) {
      problem = fmt::format("those of layer {} add up to {}, not {}", c.engram_layers[i], sum,
                            c.engram_num_embeddings[i]);
    }
  }
  report.add(kSum, problem);
}

void check_draft(const ModelConfig& c, Report& report) {
  constexpr const char* kTargets = "dspark_target_layer_ids ascend and are not empty";
  if (c.num_draft_stages == 0) {
    report.skip(kTargets, "there is no draft stage");
    return;
  }
  report.add(kTargets,
             unless(!c.dspark_target_layers.empty() && strictly_ascending(c.dspark_target_layers),
                    fmt::format("they are {}", c.dspark_target_layers)));
  report.add(
      "dspark_num_experts_per_tok is at most dspark_n_routed_experts",
      unless(c.dspark_experts_per_token <= c.dspark_num_experts,
             fmt::format("{} of {} are chosen", c.dspark_experts_per_token, c.dspark_num_experts)));
}

void check_vision(const ModelConfig& c, Report& report) {
  constexpr const char* kHeads =
      "vision heads divide the vision width into multiples of 4 channels";
  if (!c.vision) {
    report.skip(kHeads, "there is no vision tower");
    return;
  }
  report.add(kHeads, unless(c.vision->hidden_size % (4 * c.vision->num_heads) == 0,
                            fmt::format("{} channels, {} heads", c.vision->hidden_size,
                                        c.vision->num_heads)));
  report.add("a model with a vision tower names its image token",
             unless(c.image_token_id >= 0, "image_token_id is missing"));
}

bool is_prime(int64_t n) {
  if (n < 4) return n >= 2;
  if (n % 2 == 0 || n % 3 == 0) return false;
  for (int64_t d = 5; d * d <= n; d += 6) {
    if (n % d == 0 || n % (d + 2) == 0) return false;
  }
  return true;
}

}  // namespace

int32_t ModelConfig::kv_source_of(int64_t layer) const {
  return ratio(layer) == 0 ? -1 : last_at_or_before(kv_source_layers, layer);
}

int32_t ModelConfig::index_source_of(int64_t layer) const {
  return ratio(layer) == 0 ? -1 : last_at_or_before(index_source_layers, layer);
}

int32_t ModelConfig::engram_index(int64_t layer) const {
  const auto found = std::ranges::find(engram_layers, layer);
  return found == engram_layers.end() ? -1 : static_cast<int32_t>(found - engram_layers.begin());
}

std::vector<std::vector<int64_t>> engram_primes(const ModelConfig& config) {
  std::set<int64_t> used;
  std::vector<std::vector<int64_t>> result;
  for (size_t layer = 0; layer < config.engram_layers.size(); ++layer) {
    std::vector<int64_t>& primes = result.emplace_back();
    for (int64_t order = 2; order <= config.engram_max_ngram; ++order) {
      int64_t current = config.engram_vocab_size - 1;
      for (int64_t head = 0; head < config.engram_num_heads; ++head) {
        do {
          ++current;
        } while (used.contains(current) || !is_prime(current));
        used.insert(current);
        primes.push_back(current);
      }
    }
  }
  return result;
}

std::vector<CheckResult> check_config(const ModelConfig& config) {
  Report report;
  report.add("compress_ratios has one entry per layer and draft stage", "");
  check_dimensions(config, report);
  check_sources(config, report);
  check_engram(config, report);
  check_draft(config, report);
  check_vision(config, report);
  constexpr const char* kContext = "YaRN stretches the original context to max_position_embeddings";
  const RopeScaling& yarn = config.rope_scaling;
  const double reach = yarn.factor * static_cast<double>(yarn.original_max_positions);
  if (reach == static_cast<double>(config.max_positions)) {
    report.add(kContext, "");
  } else {
    report.skip(kContext,
                fmt::format("{} × {} is not {}; positions are used as they are", yarn.factor,
                            yarn.original_max_positions, config.max_positions));
  }
  return report.take();
}

}  // namespace deepinfer::checkpoint
