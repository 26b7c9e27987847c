#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace deepinfer {

/// The processors that compute threads should use: one per physical core among those that the
/// process may run on, at most as many as its CPU quota (cgroup) pays for; never empty.
std::vector<int> compute_processors();

/// A fixed set of worker threads that share loops. parallel_for may be called from one thread at a
/// time (the engine thread), which takes part in the work and may change between calls. Workers
/// wait for the next loop awake for a moment, because the steps of a decode follow each other
/// within microseconds, and then asleep.
class ThreadPool {
 public:
  enum class Pinning : uint8_t {
    kNone,
    kCores,  // worker i stays on processor i of compute_processors(), if there are enough
  };

  /// `num_threads` in all, the caller included; 0 = one per physical core.
  explicit ThreadPool(int num_threads, Pinning pinning = Pinning::kNone);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return num_threads_; }

  /// Keeps the calling thread on the processor that the pinned workers leave free; nothing if they
  /// are not pinned. For the thread that calls parallel_for, once.
  void pin_caller() const;

  /// Calls body(begin, end) over disjoint ranges that cover [0, count), ranges of at least `grain`
  /// items. Which thread gets which range is not defined, so results must not depend on it. The
  /// first exception that a body throws is rethrown here after all ranges have ended. Allocates
  /// nothing.
  template <typename Body>
  void parallel_for(int64_t count, int64_t grain, Body&& body) {
    using Plain = std::remove_reference_t<Body>;
    run({.context = const_cast<void*>(static_cast<const void*>(std::addressof(body))),
         .call = [](void* context, int64_t begin,
                    int64_t end) { (*static_cast<Plain*>(context))(begin, end); },
         .count = count,
         .chunk = grain});
  }

  /// Inside a body: 0 on the caller's thread, 1 … num_threads() - 1 on a worker's. For memory that
  /// each thread has of its own.
  static int thread_index();

 private:
  struct Loop {
    void* context = nullptr;
    void (*call)(void* context, int64_t begin, int64_t end) = nullptr;
    int64_t count = 0;
    int64_t chunk = 1;
  };
  void run(Loop loop);
  void run_ranges();
  void work(int index);
  void stop_workers();

  int num_threads_ = 1;
  std::vector<int> processors_;  // where the threads stay; empty if they are not pinned
  bool spins_ = false;           // waiting threads may keep their processors busy

  /// Number of the loop (upper bits), whether it takes workers (kOpen), how many are in it (lower
  /// bits). A worker enters by adding one while the loop is open: acquiring, so that it sees loop_.
  /// It leaves by a release, and the caller goes on when an acquire shows that nobody is left.
  std::atomic<uint32_t> state_{0};
  std::atomic<int64_t> next_{0};  // relaxed: the ranges are disjoint, state_ publishes the results
  std::atomic<bool> stop_{false};
  Loop loop_;  // written while nobody is in a loop
  std::mutex error_mutex_;
  std::exception_ptr error_;  // guarded by error_mutex_ while the loop runs
  std::vector<std::thread> workers_;
};

}  // namespace deepinfer
