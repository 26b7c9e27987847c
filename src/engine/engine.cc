#include "deepinfer/engine.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <limits>
#include <new>
#include <thread>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "cpu/backend.h"
#include "cpu/machine_limits.h"
#include "engine/mailbox.h"
#include "engine/output_stream.h"
#include "engine/runner.h"
#include "engine/scoring.h"
#include "engine/step_loop.h"
#include "ops/profiling_backend.h"
#include "sampling/sample_row.h"
#include "text/engram_token_map.h"

namespace deepinfer {
namespace {

using checkpoint::Checkpoint;
using checkpoint::ModelConfig;

/// Tokens of context that a running request gets on average when nobody says how many.
constexpr int64_t kDefaultRequestTokens = 4096;
/// Most rows whose logits a step computes beyond one per request: scoring goes in steps of so many.
constexpr int64_t kScoreRows = 64;

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

/// Engram's compressed id of every token: from engram_token_map.json if the folder has it, else
/// from the tokenizer.
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

/// What the options and the model leave of pool and context, in tokens.
struct ContextLimits {
  int64_t kv_tokens;  // a multiple of the page size
  int64_t max_model_len;
};

/// Refuses caches that this machine cannot hold, before anything is allocated for them.
void check_memory(const EngineOptions& options, const ModelConfig& config, int64_t kv_tokens) {
  const cache::CacheShape shape = model::Model::cache_shape(config);
  const int64_t pages = kv_tokens / cache::kPageTokens;
  const auto slots = static_cast<double>(options.max_batch);
  const double counts = slots * static_cast<double>(config.vocab_size) * sizeof(int32_t);
  const double bytes = static_cast<double>(pages * shape.page_bytes()) +
                       slots * static_cast<double>(shape.slot_bytes()) + counts;
  const double memory = static_cast<double>(::sysconf(_SC_PHYS_PAGES)) *
                        static_cast<double>(::sysconf(_SC_PAGE_SIZE));
  if (bytes > memory) {
    constexpr double kGiB = 1024.0 * 1024 * 1024;
    fail(ErrorCode::kResourceExhausted,
         "kv_tokens {} and max_batch {} need {:.1f} GiB of caches, this machine has {:.1f}: lower "
         "one of them",
         kv_tokens, options.max_batch, bytes / kGiB, memory / kGiB);
  }
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
  check_memory(options, config, tokens);
  return {.kv_tokens = tokens, .max_model_len = asked > 0 ? asked : std::min(limit, tokens)};
}

/// Exact numerics are the reference's alone; everything else is fastest on the cpu backend.
std::unique_ptr<ops::Backend> make_backend(const EngineOptions& options, ThreadPool& pool) {
  if (options.numerics == "exact") {
    return ops::make_reference_backend(ops::Numerics::kExact, pool);
  }
  if (options.backend == "reference") {
    return ops::make_reference_backend(ops::Numerics::kEngine, pool);
  }
  return cpu::make_cpu_backend(pool, {.level = options.cpu_level});
}

class EngineImpl final : public Engine {
 public:
  explicit EngineImpl(const EngineOptions& options)
      : checkpoint_(Checkpoint::open(options.model, {.show_progress = options.show_progress})),
        tokenizer_(load_tokenizer(options.model, checkpoint_->config())),
        token_map_(load_token_map(*checkpoint_, tokenizer())),
        context_(context_limits(options, checkpoint_->config())),
        pool_(options.threads, ThreadPool::Pinning::kCores),
        profiler_(options.profile ? ops::make_profiling_backend(make_backend(options, pool_))
                                  : nullptr),
        plain_backend_(options.profile ? nullptr : make_backend(options, pool_)),
        backend_(options.profile ? profiler_.get() : plain_backend_.get()),
        pages_(context_.kv_tokens / cache::kPageTokens),
        limits_{.num_layers = checkpoint_->config().num_layers,
                .page_tokens = cache::kPageTokens,
                .max_prefill_rows = options.prefill_chunk,
                .max_logit_rows = options.max_batch + std::min(options.prefill_chunk, kScoreRows),
                .max_running = options.max_batch},
        runner_(*checkpoint_, *backend_, token_map_,
                {.max_rows = limits_.max_rows(), .max_logit_rows = limits_.max_logit_rows},
                cache_shape(options)),
        loop_(runner_, pages_, limits_),
        thread_([this] { run(); }) {}

  ~EngineImpl() override { mailbox_->close(); }

  OutputStream submit(Request request) override;
  ScoreResult score(std::span<const int32_t> tokens, const ScoreOptions& options) override;

  const Tokenizer* tokenizer() const override { return tokenizer_ ? &*tokenizer_ : nullptr; }
  ModelInfo model_info() const override {
    const ModelConfig& config = checkpoint_->config();
    return {.vocab_size = config.vocab_size,
            .max_model_len = context_.max_model_len,
            .bos_token_id = config.bos_token_id,
            .eos_token_id = config.eos_token_id};
  }
  EngineStats stats() const override { return loop_.stats(); }
  std::vector<OperationStats> operation_stats() override {
    return on_engine_thread<std::vector<OperationStats>>([this] { return collect_operations(); });
  }
  MachineLimits measure_limits() override {
    return on_engine_thread<MachineLimits>([this] {
      const cpu::MachineLimits limits = cpu::measure_limits(pool_);
      return MachineLimits{limits.read_bytes_per_second, limits.operations_per_second};
    });
  }
  std::string system_fingerprint() const override {
    return fmt::format("{}-{:016x}", backend_->numerics_id(), checkpoint_->fingerprint());
  }

 private:
  cache::CacheShape cache_shape(const EngineOptions& options) const {
    cache::CacheShape shape = model::Model::cache_shape(checkpoint_->config());
    shape.num_slots = options.max_batch;
    shape.num_pages = pages_.size();
    shape.max_slot_tokens = context_.max_model_len;
    return shape;
  }
  void check_tokens(std::span<const int32_t> tokens) const;
  ScoreResult run_score(const std::vector<int32_t>& tokens, bool want_logits);
  std::vector<TraceTensor> run_trace(const std::vector<int32_t>& tokens);
  std::vector<OperationStats> collect_operations() const;
  /// Runs `task` between two steps and waits for its result.
  template <typename Result>
  Result on_engine_thread(std::function<Result()> task) {
    auto job = std::make_shared<std::packaged_task<Result()>>(std::move(task));
    std::future<Result> result = job->get_future();
    post([job = std::move(job)] { (*job)(); });
    return result.get();
  }
  /// Hands a job to the engine thread. Errors: kInternal when that has stopped.
  void post(engine::Mailbox::Job job);
  void run();

  std::shared_ptr<const Checkpoint> checkpoint_;
  std::optional<Tokenizer> tokenizer_;
  std::vector<int32_t> token_map_;
  ContextLimits context_;
  ThreadPool pool_;
  std::unique_ptr<ops::ProfilingBackend> profiler_;  // null: nobody counts
  std::unique_ptr<ops::Backend> plain_backend_;      // null: the profiler has it
  ops::Backend* backend_;                            // one of these
  cache::IndexPool pages_;
  scheduler::Limits limits_;
  engine::Runner runner_;
  engine::StepLoop loop_;
  std::shared_ptr<engine::Mailbox> mailbox_ = std::make_shared<engine::Mailbox>();
  std::atomic<scheduler::RequestId> next_id_ = 1;  // relaxed: only uniqueness matters
  std::jthread thread_;  // last: stops before anything that it uses goes away
};

void EngineImpl::run() {
  pool_.pin_caller();
  try {
    bool closed = false;
    while (!closed) {
      for (const engine::Mailbox::Job& job : mailbox_->take(loop_.idle(), closed)) job();
      if (!closed && !loop_.idle()) loop_.step();
    }
    loop_.end_all();
  } catch (const std::exception& error) {
    // A bug, or no memory even to end a request: nothing that runs can be trusted to go on.
    log(LogLevel::kError, "the engine stops: {}", error.what());
    mailbox_->close();
    loop_.end_all(error.what());
  }
}

void EngineImpl::post(engine::Mailbox::Job job) {
  if (!mailbox_->post(std::move(job))) {
    fail(ErrorCode::kInternal, "the engine has stopped and takes no more requests");
  }
}

void EngineImpl::check_tokens(std::span<const int32_t> tokens) const {
  if (tokens.empty())
    fail(ErrorCode::kInvalidArgument, "the prompt has no tokens, expected at least one");
  const int64_t vocab = checkpoint_->config().vocab_size;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= vocab) {
      fail(ErrorCode::kInvalidArgument, "token {} of the prompt is {}, expected 0 to {}", i,
           tokens[i], vocab - 1);
    }
  }
}

OutputStream EngineImpl::submit(Request request) {
  check_tokens(request.prompt);
  request.sampling.validate(checkpoint_->config().vocab_size);
  if (tokenizer() == nullptr && !request.sampling.stop.empty()) {
    fail(ErrorCode::kInvalidArgument, "stop strings need a tokenizer.json in the model's folder");
  }
  const auto prompt_size = static_cast<int64_t>(request.prompt.size());
  if (prompt_size >= context_.max_model_len) {
    fail(ErrorCode::kInvalidArgument,
         "the prompt has {} tokens, expected at most {} (max_model_len {} less one to generate)",
         prompt_size, context_.max_model_len - 1, context_.max_model_len);
  }

  auto stream = std::make_shared<OutputStream::State>();
  const scheduler::RequestId id = next_id_.fetch_add(1, std::memory_order_relaxed);
  stream->cancel = [mailbox = mailbox_, id, this] {
    // Jobs run on the engine thread only while the engine lives, so `this` is valid there; a
    // stopped engine has ended the request already.
    std::ignore = mailbox->post([this, id] { loop_.cancel(id); });
  };
  const uint64_t seed = request.sampling.seed ? *request.sampling.seed : sampling::random_seed();
  const int64_t max_new =
      std::min(request.sampling.max_tokens, context_.max_model_len - prompt_size);
  auto state = std::make_shared<std::unique_ptr<engine::RequestState>>(
      std::make_unique<engine::RequestState>(std::move(request), stream, seed, max_new,
                                             checkpoint_->config().eos_token_id, tokenizer()));
  post([this, id, state] { loop_.start(id, std::move(*state)); });
  return OutputStream(std::move(stream));
}

ScoreResult EngineImpl::score(std::span<const int32_t> tokens, const ScoreOptions& options) {
  check_tokens(tokens);
  if (static_cast<int64_t>(tokens.size()) > context_.max_model_len) {
    fail(ErrorCode::kInvalidArgument,
         "the sequence has {} tokens, expected at most {} (max_model_len)", tokens.size(),
         context_.max_model_len);
  }
  const std::vector<int32_t> copy(tokens.begin(), tokens.end());
  try {
    ScoreResult result = run_score(copy, options.logits);
    if (options.trace) result.trace = run_trace(copy);
    return result;
  } catch (const std::future_error&) {
    fail(ErrorCode::kInternal, "the engine stopped before the score was computed");
  } catch (const std::bad_alloc&) {
    fail(ErrorCode::kResourceExhausted, "no memory for the logits or the trace of {} tokens",
         tokens.size());
  }
}

ScoreResult EngineImpl::run_score(const std::vector<int32_t>& tokens, bool want_logits) {
  auto job =
      std::make_unique<engine::ScoreJob>(tokens, want_logits, checkpoint_->config().vocab_size);
  std::future<ScoreResult> result = job->result();
  const scheduler::RequestId id = next_id_.fetch_add(1, std::memory_order_relaxed);
  // Nobody but the mailbox keeps the job: dropped, it breaks the promise.
  post([this, id, shared = std::make_shared<std::unique_ptr<engine::ScoreJob>>(std::move(job))] {
    loop_.start(id, std::move(*shared));
  });
  return result.get();
}

std::vector<TraceTensor> EngineImpl::run_trace(const std::vector<int32_t>& tokens) {
  return on_engine_thread<std::vector<TraceTensor>>([this, tokens] {
    return engine::trace_sequence(*checkpoint_, *backend_, token_map_, tokens);
  });
}

std::vector<OperationStats> EngineImpl::collect_operations() const {
  std::vector<OperationStats> stats;
  if (profiler_ == nullptr) return stats;
  const ops::Profile& profile = profiler_->profile();
  for (size_t i = 0; i < profile.size(); ++i) {
    stats.push_back({.name = std::string(ops::to_string(static_cast<ops::Operation>(i))),
                     .calls = profile[i].calls,
                     .seconds = profile[i].seconds,
                     .bytes = profile[i].bytes,
                     .operations = profile[i].operations});
  }
  return stats;
}

}  // namespace

std::unique_ptr<Engine> Engine::create(const EngineOptions& options) {
  options.validate();
  return std::make_unique<EngineImpl>(options);
}

}  // namespace deepinfer
