#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <stop_token>
#include <thread>
#include <vector>

namespace deepinfer {

/// A fixed set of worker threads that share loops. parallel_for may be called from one thread at a
/// time (the engine thread), which takes part in the work.
class ThreadPool {
 public:
  /// `num_threads` in all, the caller included; 0 = one per hardware thread.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return num_threads_; }

  /// Calls body(begin, end) over disjoint ranges that cover [0, count), ranges of at least `grain`
  /// items. Which thread gets which range is not defined, so results must not depend on it. The
  /// first exception that a body throws is rethrown here after all ranges have ended.
  void parallel_for(int64_t count, int64_t grain,
                    const std::function<void(int64_t, int64_t)>& body);

 private:
  struct Loop;
  void work(const std::stop_token& stop);
  static void run_ranges(Loop& loop);

  int num_threads_;
  std::mutex mutex_;  // guards loop_, generation_, busy_
  std::condition_variable_any start_;
  std::condition_variable done_;
  Loop* loop_ = nullptr;
  uint64_t generation_ = 0;
  int busy_ = 0;
  std::vector<std::jthread> workers_;
};

}  // namespace deepinfer
