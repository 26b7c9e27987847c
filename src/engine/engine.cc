#include "deepinfer/engine.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <mutex>
#include <new>
#include <thread>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "cache/cache_tiers.h"
#include "checkpoint/checkpoint.h"
#include "cpu/machine_limits.h"
#include "engine/mailbox.h"
#include "engine/output_stream.h"
#include "engine/runner.h"
#include "engine/scoring.h"
#include "engine/setup.h"
#include "engine/step_loop.h"
#include "engine/step_thread.h"
#include "ops/profiling_backend.h"
#include "sampling/sample_row.h"

namespace deepinfer {
namespace {

using checkpoint::Checkpoint;
using checkpoint::ModelConfig;

class EngineImpl final : public Engine {
 public:
  explicit EngineImpl(const EngineOptions& options)
      : checkpoint_(Checkpoint::open(options.model, {.show_progress = options.show_progress})),
        tokenizer_(engine::load_tokenizer(options.model, checkpoint_->config())),
        token_map_(engine::load_token_map(*checkpoint_, tokenizer())),
        context_(engine::context_limits(options, checkpoint_->config())),
        pool_(options.threads, ThreadPool::Pinning::kCores),
        replay_suffix_(options.replay == "bounded" ? fmt::format("-bounded{}", options.keep_tokens)
                                                   : std::string()),
        profiler_(options.profile ? ops::make_profiling_backend(make_backend(options)) : nullptr),
        plain_backend_(options.profile ? nullptr : make_backend(options)),
        backend_(options.profile ? profiler_.get() : plain_backend_.get()),
        cache_({.num_pages = context_.kv_tokens / cache::kPageTokens,
                .page_tokens = cache::kPageTokens,
                .num_snapshot_units = engine::snapshot_units(options),
                .identity = system_fingerprint(),
                .reuse = options.prefix_cache,
                .record_changes = has_tiers(options)}),
        limits_(engine::scheduler_limits(options, checkpoint_->config())),
        runner_(*checkpoint_, *backend_, token_map_, engine::step_limits(limits_),
                cache_shape(options),
                model::bind_weights(*checkpoint_, *backend_, options.show_progress)),
        executor_(
            runner_, [this] { pool_.pin_caller(); }, [this] { mailbox_->poke(); }),
        tiers_(make_tiers(options)),
        loop_(executor_, cache_, limits_, engine::restart_rules(options, checkpoint_->config()),
              tiers_.get()),
        thread_([this] { run(); }) {}

  ~EngineImpl() override { mailbox_->close(); }

  OutputStream submit(Request request) override;
  ScoreResult score(std::span<const int32_t> tokens, const ScoreOptions& options) override;

  void set_output_listener(std::function<void()> listener) override {
    const std::lock_guard lock(listener_mutex_);
    listener_ = std::move(listener);
  }

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
    return fmt::format("{}-{:016x}{}", backend_->numerics_id(), checkpoint_->fingerprint(),
                       replay_suffix_);
  }

 private:
  std::unique_ptr<ops::Backend> make_backend(const EngineOptions& options) {
    return engine::make_backend(options, checkpoint_->config(), context_, pool_);
  }
  static bool has_tiers(const EngineOptions& options) {
    return options.host_cache_bytes > 0 || !options.cache_dir.empty();
  }
  std::unique_ptr<cache::CacheTiers> make_tiers(const EngineOptions& options) {
    if (!has_tiers(options)) return nullptr;
    return std::make_unique<cache::CacheTiers>(
        cache::TierOptions{.host_bytes = options.host_cache_bytes,
                           .directory = options.cache_dir,
                           .disk_bytes = options.cache_dir_bytes,
                           .identity = system_fingerprint()},
        cache_, cache_shape(options), [mailbox = mailbox_] { mailbox->poke(); });
  }
  cache::CacheShape cache_shape(const EngineOptions& options) const {
    cache::CacheShape shape = model::Model::cache_shape(checkpoint_->config());
    shape.num_slots = options.max_batch;
    shape.num_pages = cache_.size();
    shape.num_snapshot_units = cache_.snapshots().num_units();
    shape.max_slot_tokens = context_.max_model_len;
    return shape;
  }
  void check_tokens(std::span<const int32_t> tokens) const;
  ScoreResult run_score(const std::vector<int32_t>& tokens, bool want_logits);
  std::vector<TraceTensor> run_trace(const std::vector<int32_t>& tokens);
  std::vector<OperationStats> collect_operations() const;
  /// Runs `task` when no step runs and waits for its result.
  template <typename Result>
  Result on_engine_thread(std::function<Result()> task) {
    auto job = std::make_shared<std::packaged_task<Result()>>([this, task = std::move(task)] {
      loop_.drain();  // the backend computes one thing at a time
      return task();
    });
    std::future<Result> result = job->get_future();
    post([job = std::move(job)] { (*job)(); });
    return result.get();
  }
  /// Hands a job to the engine thread. Errors: kInternal when that has stopped.
  void post(engine::Mailbox::Job job);
  void run();
  void notify_listener() {
    const std::lock_guard lock(listener_mutex_);
    if (listener_) listener_();
  }

  std::shared_ptr<const Checkpoint> checkpoint_;
  std::optional<Tokenizer> tokenizer_;
  std::vector<int32_t> token_map_;
  engine::ContextLimits context_;
  ThreadPool pool_;
  std::string replay_suffix_;  // of the fingerprint: bounded replay gives other tokens
  std::unique_ptr<ops::ProfilingBackend> profiler_;  // null: nobody counts
  std::unique_ptr<ops::Backend> plain_backend_;      // null: the profiler has it
  ops::Backend* backend_;                            // one of these
  cache::PrefixCache cache_;
  scheduler::Limits limits_;
  engine::Runner runner_;
  std::shared_ptr<engine::Mailbox> mailbox_ = std::make_shared<engine::Mailbox>();
  engine::StepThread executor_;
  std::unique_ptr<cache::CacheTiers> tiers_;  // null: nothing is kept beyond the pool
  engine::StepLoop loop_;
  std::atomic<scheduler::RequestId> next_id_ = 1;  // relaxed: only uniqueness matters
  std::mutex listener_mutex_;                      // guards listener_, also while it runs
  std::function<void()> listener_;
  std::jthread thread_;  // last: stops before anything that it uses goes away
};

void EngineImpl::run() {
  try {
    bool closed = false;
    bool busy = false;  // the last round did something: there may be more
    while (!closed) {
      constexpr std::chrono::seconds kNoEnd = std::chrono::hours(1);
      const std::chrono::seconds longest = loop_.is_loading() ? std::chrono::seconds(1) : kNoEnd;
      const std::vector<engine::Mailbox::Job> jobs =
          mailbox_->take(busy ? std::chrono::seconds(0) : longest, closed);
      for (const engine::Mailbox::Job& job : jobs) job();
      if (closed) break;
      busy = loop_.land();
      // Before the next launch: results reach their readers while the device computes.
      if (busy || !jobs.empty()) notify_listener();
      busy = loop_.launch() || busy;
    }
    loop_.end_all();
    notify_listener();
    loop_.save_cached();
  } catch (const std::exception& error) {
    // A bug, or no memory even to end a request: nothing that runs can be trusted to go on.
    log(LogLevel::kError, "the engine stops: {}", error.what());
    mailbox_->close();
    loop_.end_all(error.what());
    notify_listener();
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
  engine::check_request(request, checkpoint_->config().vocab_size, tokenizer() != nullptr);
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
  // Scratch memory of a device is planned for the steps of the engine.
  const auto count = static_cast<int64_t>(tokens.size());
  if (backend_->name() == "cuda" && count > limits_.max_rows()) {
    fail(ErrorCode::kResourceExhausted,
         "a trace of {} tokens was asked for, a step on the device holds {}: raise prefill_chunk",
         count, limits_.max_rows());
  }
  return on_engine_thread<std::vector<TraceTensor>>([this, tokens] {
    return engine::trace_sequence(*checkpoint_, *backend_, token_map_, runner_.weights(), tokens);
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
