#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/runner.h"
#include "engine/step.h"

namespace deepinfer::engine {

/// Runs the steps of a Runner on a thread of its own, so that planning and delivering overlap with
/// computing. On a backend that works asynchronously it enqueues the next step before it waits for
/// the one that runs.
class StepThread final : public StepExecutor {
 public:
  /// `runner` and its backend are used by this thread alone while steps are launched; `on_start` is
  /// called on it first, `on_done` after every step.
  StepThread(Runner& runner, const std::function<void()>& on_start, std::function<void()> on_done);
  ~StepThread() override;

  void launch(Step& step) override;
  bool done(const Step& step) override;
  void wait(const Step& step) override;

 private:
  void work(const std::stop_token& stop);
  /// The next launched step; waits for one unless there is other work.
  Step* take(const std::stop_token& stop, bool wait);
  void start(Step& step);
  bool has_ended(const Step& step);
  /// Waits for a started step and hands it back.
  void finish(Step& step);

  Runner& runner_;
  std::function<void()> on_done_;
  std::deque<Step*> started_;    // on the backend; the thread's own
  uint64_t failed_epoch_ = ~0U;  // the thread's own
  std::mutex mutex_;             // guards everything below
  std::condition_variable_any launched_;
  std::condition_variable finished_;
  std::deque<Step*> queue_;
  std::vector<const Step*> pending_;  // launched and not done
  std::jthread thread_;
};

}  // namespace deepinfer::engine
