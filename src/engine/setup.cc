#include "engine/setup.h"

#include <unistd.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/file.h"
#include "cache/kv_cache.h"
#include "checkpoint/memory_plan.h"
#include "checkpoint/synthetic.h"
#include "cpu/backend.h"
#include "cuda/cuda.h"
#include "engine/device_plan.h"
#include "model/forward.h"
#include "text/engram_token_map.h"

namespace deepinfer::engine {

using checkpoint::Checkpoint;
using checkpoint::ModelConfig;

namespace {

/// Tokens of context that a running request gets on average when nobody says how many.
constexpr int64_t kDefaultRequestTokens = 4096;
/// Most rows whose logits a step computes beyond one per request: scoring goes in steps of so many.
constexpr int64_t kScoreRows = 64;

/// Pages, slots, snapshots and token counts. A double: options may name more than fits 64 bits.
double cache_bytes(const EngineOptions& options, const ModelConfig& config, int64_t kv_tokens) {
  const cache::CacheShape shape = model::Model::cache_shape(config);
  const int64_t pages = kv_tokens / cache::kPageTokens;
  const auto slots = static_cast<double>(options.max_batch);
  const double counts = slots * static_cast<double>(config.vocab_size) * sizeof(int32_t);
  return static_cast<double>(pages * shape.page_bytes()) +
         slots * static_cast<double>(shape.slot_bytes()) + counts +
         static_cast<double>(snapshot_units(options)) *
             static_cast<double>(shape.snapshot_unit_bytes());
}

/// Refuses caches that this machine cannot hold, before anything is allocated for them.
void check_memory(const EngineOptions& options, const ModelConfig& config, int64_t kv_tokens) {
  const double bytes = cache_bytes(options, config, kv_tokens);
  const double memory = static_cast<double>(::sysconf(_SC_PHYS_PAGES)) *
                        static_cast<double>(::sysconf(_SC_PAGE_SIZE));
  constexpr double kGiB = 1024.0 * 1024 * 1024;
  if (options.model.native().starts_with(checkpoint::kSyntheticPrefix)) {
    // Stored weights are mapped; random ones have no file to go back to.
    const checkpoint::MemoryPlan plan = checkpoint::plan_memory(config);
    const auto weights = static_cast<double>(plan.resident_bytes + plan.mapped_bytes);
    if (weights > memory) {
      fail(ErrorCode::kResourceExhausted,
           "{}: {:.1f} GiB of random weights, this machine has {:.1f}: choose fewer layers or "
           "experts",
           options.model.string(), weights / kGiB, memory / kGiB);
    }
  }
  if (bytes > memory) {
    fail(ErrorCode::kResourceExhausted,
         "kv_tokens {}, max_batch {} and snapshots {} need {:.1f} GiB of caches, this machine has "
         "{:.1f}: lower one of them",
         kv_tokens, options.max_batch, options.snapshots, bytes / kGiB, memory / kGiB);
  }
}

/// Whether the model runs on the CUDA device. "auto" takes one that can be used unless somebody
/// names a level of the cpu backend. A program without CUDA, or a machine without a driver, says no
/// at once.
bool runs_on_device(const EngineOptions& options) {
  if (options.numerics == "exact" || options.backend == "reference") return false;
  if (options.backend == "cuda") return true;
  if (options.backend != "auto" || !options.cpu_level.empty()) return false;
  const cuda::DeviceList list = cuda::list_devices();
  const auto index = static_cast<size_t>(options.device);
  return list.problem.empty() && index < list.devices.size() && list.devices[index].problem.empty();
}

bool is_utf8(const std::string& text) {
  return replace_invalid_utf8(text) == text;
}

}  // namespace

std::optional<Tokenizer> load_tokenizer(const std::filesystem::path& directory,
                                        const ModelConfig& config) {
  if (!entry_exists(directory / "tokenizer.json")) return std::nullopt;
  Tokenizer tokenizer = Tokenizer::load(directory);
  if (tokenizer.vocab_size() > config.vocab_size) {
    fail(ErrorCode::kInvalidFile, "{}: {} tokens, but the model's vocab_size is {}",
         (directory / "tokenizer.json").string(), tokenizer.vocab_size(), config.vocab_size);
  }
  return tokenizer;
}

std::vector<int32_t> load_token_map(const Checkpoint& checkpoint, const Tokenizer* tokenizer) {
  const ModelConfig& config = checkpoint.config();
  if (config.engram_layers.empty()) return {};
  if (checkpoint.engram_token_map()) return *checkpoint.engram_token_map();
  const std::string directory = checkpoint.directory().string();
  if (tokenizer == nullptr) {
    fail(ErrorCode::kNotFound,
         "{}: the model has Engram layers, which need engram_token_map.json or tokenizer.json",
         directory);
  }
  std::vector<int32_t> map = text::derive_engram_token_map(*tokenizer);
  const int64_t size = int64_t{*std::ranges::max_element(map)} + 1;
  if (static_cast<int64_t>(map.size()) != config.vocab_size ||
      size != config.engram_compressed_vocab_size) {
    fail(ErrorCode::kInvalidFile,
         "{}/tokenizer.json: its Engram map has {} tokens and {} compressed ids, config.json says "
         "{} "
         "(vocab_size) and {} (engram_compressed_vocab_size)",
         directory, map.size(), size, config.vocab_size, config.engram_compressed_vocab_size);
  }
  return map;
}

ContextLimits context_limits(const EngineOptions& options, const ModelConfig& config) {
  const int64_t limit = config.max_positions;
  const int64_t asked = options.max_model_len;
  if (asked > limit) {
    fail(ErrorCode::kInvalidArgument, "max_model_len is {}, but the model's context is {}", asked,
         limit);
  }
  int64_t tokens = options.kv_tokens;
  if (tokens == 0) {
    tokens = std::max(options.max_batch * std::min(kDefaultRequestTokens, limit), asked);
  }
  const int64_t pages = (tokens + cache::kPageTokens - 1) / cache::kPageTokens;
  tokens = pages * cache::kPageTokens;
  if (pages > std::numeric_limits<int32_t>::max()) {
    fail(ErrorCode::kInvalidArgument, "kv_tokens is {}, expected at most {}", options.kv_tokens,
         int64_t{std::numeric_limits<int32_t>::max()} * cache::kPageTokens);
  }
  if (asked > tokens) {
    fail(ErrorCode::kInvalidArgument,
         "max_model_len is {}, but kv_tokens {} holds {}: raise kv_tokens or lower max_model_len",
         asked, options.kv_tokens, tokens);
  }
  // The memory of a device is planned, and refused, with everything that goes there.
  if (!runs_on_device(options)) check_memory(options, config, tokens);
  return {.kv_tokens = tokens, .max_model_len = asked > 0 ? asked : std::min(limit, tokens)};
}

std::unique_ptr<ops::Backend> make_backend(const EngineOptions& options, const ModelConfig& config,
                                           const ContextLimits& context, ThreadPool& pool) {
  // Exact numerics are the reference's alone; everything else is fastest on a device, then on the
  // cpu backend.
  if (options.numerics == "exact") {
    return ops::make_reference_backend(ops::Numerics::kExact, pool);
  }
  if (options.backend == "reference") {
    return ops::make_reference_backend(ops::Numerics::kEngine, pool);
  }
  if (runs_on_device(options)) {
    const double caches = cache_bytes(options, config, context.kv_tokens);
    const DevicePlan plan = plan_device(config, step_limits(scheduler_limits(options, config)),
                                        static_cast<int64_t>(caches));
    return cuda::make_backend(backend_options(options, plan));
  }
  return cpu::make_cpu_backend(pool, {.level = options.cpu_level});
}

int64_t snapshot_units(const EngineOptions& options) {
  return options.prefix_cache ? 2 * options.snapshots : 0;
}

scheduler::Limits scheduler_limits(const EngineOptions& options, const ModelConfig& config) {
  return {.max_prefill_rows = options.prefill_chunk,
          .max_score_rows = std::min(options.prefill_chunk, kScoreRows),
          .max_running = options.max_batch,
          .ring_slack = cache::kRingSlack,
          .history = config.engram_layers.empty() ? 0 : config.engram_max_ngram - 1};
}

model::StepLimits step_limits(const scheduler::Limits& limits) {
  return {.max_rows = limits.max_rows(), .max_logit_rows = limits.max_logit_rows()};
}

cache::RestartRules restart_rules(const EngineOptions& options, const ModelConfig& config) {
  const bool bounded = options.replay == "bounded";
  if (bounded && options.keep_tokens < config.window) {
    fail(ErrorCode::kInvalidArgument, "keep_tokens is {}, expected at least the model's window, {}",
         options.keep_tokens, config.window);
  }
  return {.num_layers = config.num_layers,
          .last_source = config.kv_source_layers.empty() ? -1 : config.kv_source_layers.back(),
          .window = config.window,
          .page_tokens = cache::kPageTokens,
          .keep_tokens = bounded ? options.keep_tokens : 0,
          .snapshot_interval = options.snapshot_interval,
          .takes_snapshots = snapshot_units(options) > 0};
}

void check_request(const Request& request, int64_t vocab_size, bool has_tokenizer) {
  request.sampling.validate(vocab_size);
  if (!has_tokenizer && !request.sampling.stop.empty()) {
    fail(ErrorCode::kInvalidArgument, "stop strings need a tokenizer.json in the model's folder");
  }
  if (request.priority < -Request::kMaxPriority || request.priority > Request::kMaxPriority) {
    fail(ErrorCode::kInvalidArgument, "priority is {}, expected {} to {}", request.priority,
         -Request::kMaxPriority, Request::kMaxPriority);
  }
  if (!request.cache_salt) return;
  const std::string& salt = *request.cache_salt;
  if (salt.empty() || salt.size() > Request::kMaxCacheSaltBytes || !is_utf8(salt)) {
    fail(ErrorCode::kInvalidArgument, "cache_salt has {} bytes{}, expected text of 1 to {} bytes",
         salt.size(), is_utf8(salt) ? "" : " that are not UTF-8", Request::kMaxCacheSaltBytes);
  }
}

}  // namespace deepinfer::engine
