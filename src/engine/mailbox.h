#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

namespace deepinfer::engine {

/// How other threads reach the engine thread: jobs that it runs between steps. Shared by the engine
/// and its output streams, which may outlive it. All members: any thread.
class Mailbox {
 public:
  using Job = std::function<void()>;

  /// False if the engine has stopped; the job is dropped then.
  [[nodiscard]] bool post(Job job) {
    {
      const std::lock_guard lock(mutex_);
      if (closed_) return false;
      jobs_.push_back(std::move(job));
    }
    wake_.notify_one();
    return true;
  }

  /// The jobs posted so far. Waits until there is one or, since the last take(), poke() was called,
  /// but not longer than `longest`. Sets `closed` when close() was called.
  std::vector<Job> take(std::chrono::seconds longest, bool& closed) {
    std::unique_lock lock(mutex_);
    wake_.wait_for(lock, longest, [this] { return closed_ || poked_ || !jobs_.empty(); });
    closed = closed_;
    poked_ = false;
    return std::exchange(jobs_, {});
  }

  /// Tells the engine thread that something else has happened: a step is done.
  void poke() {
    {
      const std::lock_guard lock(mutex_);
      poked_ = true;
    }
    wake_.notify_one();
  }

  void close() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    wake_.notify_one();
  }

 private:
  std::mutex mutex_;  // guards everything below
  std::condition_variable wake_;
  std::vector<Job> jobs_;
  bool closed_ = false;
  bool poked_ = false;
};

}  // namespace deepinfer::engine
