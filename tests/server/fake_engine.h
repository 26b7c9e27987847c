#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "deepinfer/engine.h"
#include "engine/output_stream.h"
#include "engine/request_state.h"

namespace deepinfer::testing {

/// The trained model's tokenizer, loaded once.
inline const Tokenizer& tiny_tokenizer() {
  static const Tokenizer tokenizer =
      Tokenizer::load(std::string(DEEPINFER_SOURCE_DIR) + "/models/tiny-v41");
  return tokenizer;
}

/// An engine without a model: every step gives each of its requests the next token of a script.
/// Its requests end as those of the real one do.
class FakeEngine final : public Engine {
 public:
  /// Token number `index` of a request's answer.
  using Script = std::function<int32_t(const Request& request, int64_t index)>;

  explicit FakeEngine(Script script, int64_t max_model_len = 4096)
      : script_(std::move(script)), max_model_len_(max_model_len), thread_([this] { run(); }) {}
  ~FakeEngine() override {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    wake_.notify_all();
  }

  /// A script that writes a text, and then ends.
  static Script writes(std::string_view text) {
    const std::vector<int32_t> ids = tiny_tokenizer().encode(text);
    return [ids](const Request&, int64_t index) {
      return index < static_cast<int64_t>(ids.size()) ? ids[static_cast<size_t>(index)] : kEos;
    };
  }

  /// No steps while paused.
  void pause(bool paused) {
    {
      const std::lock_guard lock(mutex_);
      paused_ = paused;
    }
    wake_.notify_all();
  }
  /// At most one step in so long; set before the first request.
  void set_period(std::chrono::milliseconds period) { period_ = period; }
  /// Requests end with this error at their token of this number.
  void fail_at(int64_t index, const std::string& error) {
    const std::lock_guard lock(mutex_);
    fail_index_ = index;
    error_ = error;
  }
  /// Waits until no request is left. False after a minute.
  bool wait_idle() {
    std::unique_lock lock(mutex_);
    return idle_.wait_for(lock, std::chrono::minutes(1), [this] { return requests_.empty(); });
  }
  /// Waits until so many requests run. False after a minute.
  bool wait_running(size_t count) {
    std::unique_lock lock(mutex_);
    return idle_.wait_for(lock, std::chrono::minutes(1),
                          [this, count] { return requests_.size() >= count; });
  }

  OutputStream submit(Request request) override {
    request.sampling.validate(tiny_tokenizer().vocab_size());
    auto stream = std::make_shared<OutputStream::State>();
    const std::lock_guard lock(mutex_);
    const int64_t id = next_id_++;
    stream->cancel = [this, id] {
      const std::lock_guard inner(mutex_);
      cancelled_.push_back(id);
      wake_.notify_all();
    };
    const int64_t max_new = std::min(request.sampling.max_tokens,
                                     max_model_len_ - static_cast<int64_t>(request.prompt.size()));
    requests_.push_back({id, 0,
                         std::make_unique<engine::RequestState>(std::move(request), stream, 0,
                                                                max_new, kEos, &tiny_tokenizer())});
    wake_.notify_all();
    idle_.notify_all();
    return OutputStream(std::move(stream));
  }
  ScoreResult score(std::span<const int32_t>, const ScoreOptions&) override { return {}; }
  void set_output_listener(std::function<void()> listener) override {
    const std::lock_guard lock(listener_mutex_);
    listener_ = std::move(listener);
  }
  const Tokenizer* tokenizer() const override { return &tiny_tokenizer(); }
  ModelInfo model_info() const override {
    return {.vocab_size = tiny_tokenizer().vocab_size(),
            .max_model_len = max_model_len_,
            .bos_token_id = 0,
            .eos_token_id = kEos};
  }
  EngineStats stats() const override {
    const std::lock_guard lock(mutex_);
    EngineStats stats;
    stats.running = static_cast<int64_t>(requests_.size());
    stats.steps = steps_;
    stats.pages_total = stats.pages_free = 8;
    return stats;
  }
  std::vector<OperationStats> operation_stats() override { return {}; }
  MachineLimits measure_limits() override { return {}; }
  std::string system_fingerprint() const override { return "fake-0"; }

  static constexpr int32_t kEos = 1;

 private:
  struct Running {
    int64_t id;
    int64_t index;
    std::unique_ptr<engine::RequestState> state;
  };

  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      wake_.wait(lock, [this] {
        return closed_ || !cancelled_.empty() || (!paused_ && !requests_.empty());
      });
      if (closed_) break;
      // A stream that is dropped while its request is erased calls cancel: not under the lock.
      std::vector<Running> ended;
      take_cancelled(ended);
      if (!paused_) step(ended);
      idle_.notify_all();
      lock.unlock();
      ended.clear();
      notify();
      std::this_thread::sleep_for(period_);
      lock.lock();
    }
    std::vector<Running> rest = std::move(requests_);
    requests_.clear();
    lock.unlock();
  }

  void take_cancelled(std::vector<Running>& ended) {
    for (const int64_t id : std::exchange(cancelled_, {})) {
      for (size_t i = 0; i < requests_.size(); ++i) {
        if (requests_[i].id != id) continue;
        requests_[i].state->finish(FinishReason::kCancelled);
        ended.push_back(std::move(requests_[i]));
        requests_.erase(requests_.begin() + static_cast<ptrdiff_t>(i));
        break;
      }
    }
  }

  void step(std::vector<Running>& ended) {
    ++steps_;
    std::vector<Running> running;
    for (Running& request : requests_) {
      bool over = false;
      if (fail_index_ == request.index) {
        request.state->finish(FinishReason::kError, error_, ErrorCode::kInternal);
        over = true;
      } else {
        const int64_t index = request.index++;
        const int32_t id = script_(request.state->request(), index);
        GeneratedToken token{.id = id, .logprob = -0.5F, .top = {}};
        const int32_t tops = request.state->request().sampling.logprobs.value_or(0);
        for (int32_t i = 0; i < tops; ++i)
          token.top.push_back({id + i, -0.5F - static_cast<float>(i)});
        over = request.state->accept(std::move(token));
      }
      (over ? ended : running).push_back(std::move(request));
    }
    requests_ = std::move(running);
  }

  void notify() {
    const std::lock_guard lock(listener_mutex_);
    if (listener_) listener_();
  }

  Script script_;
  int64_t max_model_len_;
  mutable std::mutex mutex_;  // guards all but the listener
  std::condition_variable wake_;
  std::condition_variable idle_;
  std::vector<Running> requests_;
  std::vector<int64_t> cancelled_;
  int64_t next_id_ = 0;
  int64_t steps_ = 0;
  std::chrono::milliseconds period_{0};  // set before the first request
  bool paused_ = false;
  bool closed_ = false;
  std::optional<int64_t> fail_index_;
  std::string error_;
  std::mutex listener_mutex_;  // guards the listener, also while it runs
  std::function<void()> listener_;
  std::jthread thread_;  // last
};

}  // namespace deepinfer::testing
