#include "base/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <system_error>

#include "base/error.h"

namespace deepinfer {

struct ThreadPool::Loop {
  int64_t count;
  int64_t chunk;
  const std::function<void(int64_t, int64_t)>& body;
  std::atomic<int64_t> next{
      0};  // relaxed: the ranges are disjoint, and the mutex publishes their results
  std::mutex error_mutex{};
  std::exception_ptr error{};
};

ThreadPool::ThreadPool(int num_threads)
    : num_threads_(num_threads > 0
                       ? num_threads
                       : std::max(1, static_cast<int>(std::thread::hardware_concurrency()))) {
  workers_.reserve(static_cast<size_t>(num_threads_ - 1));
  try {
    for (int i = 1; i < num_threads_; ++i) {
      workers_.emplace_back([this](const std::stop_token& stop) { work(stop); });
    }
  } catch (const std::system_error& error) {
    fail(ErrorCode::kResourceExhausted, "cannot start {} threads: {}", num_threads_,
         error.code().message());
  }
}

ThreadPool::~ThreadPool() {
  for (std::jthread& worker : workers_) worker.request_stop();
  workers_.clear();
}

void ThreadPool::run_ranges(Loop& loop) {
  for (;;) {
    const int64_t begin = loop.next.fetch_add(loop.chunk, std::memory_order_relaxed);
    if (begin >= loop.count) return;
    try {
      loop.body(begin, std::min(begin + loop.chunk, loop.count));
    } catch (...) {
      const std::lock_guard lock(loop.error_mutex);
      if (!loop.error) loop.error = std::current_exception();
    }
  }
}

void ThreadPool::work(const std::stop_token& stop) {
  uint64_t seen = 0;
  std::unique_lock lock(mutex_);
  while (start_.wait(lock, stop, [&] { return generation_ != seen; })) {
    seen = generation_;
    Loop* loop = loop_;
    if (loop == nullptr) continue;  // woke after the loop had already ended
    ++busy_;
    lock.unlock();
    run_ranges(*loop);
    lock.lock();
    if (--busy_ == 0) done_.notify_one();
  }
}

void ThreadPool::parallel_for(int64_t count, int64_t grain,
                              const std::function<void(int64_t, int64_t)>& body) {
  if (count <= 0) return;
  // About four ranges a thread evens out unequal work without paying for many hand-overs.
  const int64_t ranges = int64_t{num_threads_} * 4;
  const int64_t chunk = std::max({grain, int64_t{1}, (count + ranges - 1) / ranges});
  Loop loop{count, chunk, body};
  if (chunk >= count || workers_.empty()) {
    run_ranges(loop);
  } else {
    {
      const std::lock_guard lock(mutex_);
      loop_ = &loop;
      ++generation_;
    }
    start_.notify_all();
    run_ranges(loop);
    std::unique_lock lock(mutex_);
    loop_ = nullptr;
    done_.wait(lock, [&] { return busy_ == 0; });
  }
  if (loop.error) std::rethrow_exception(loop.error);
}

}  // namespace deepinfer
