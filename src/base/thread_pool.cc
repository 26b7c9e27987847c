#include "base/thread_pool.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <set>
#include <string>
#include <system_error>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/error.h"

namespace deepinfer {
namespace {

// The parts of ThreadPool::state_.
constexpr uint32_t kWorkerMask = 0x7FFF;
constexpr uint32_t kOpen = 0x8000;
constexpr uint32_t kLoopUnit = 0x10000;

/// How long a thread waits awake: longer than what lies between two loops of a decode step, much
/// shorter than what would disturb others.
constexpr std::chrono::microseconds kSpinTime{150};

thread_local int current_index = 0;

void pause_briefly() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Waits until `is_done(state)`: awake for kSpinTime if `spins`, then asleep.
template <typename IsDone>
uint32_t wait_for(const std::atomic<uint32_t>& state, bool spins, IsDone is_done) {
  uint32_t now = state.load(std::memory_order_acquire);
  if (spins) {
    constexpr int kPausesPerLook = 64;  // reading the clock costs more than a pause
    const auto end = std::chrono::steady_clock::now() + kSpinTime;
    for (int i = 1; !is_done(now); ++i) {
      if (i % kPausesPerLook == 0 && std::chrono::steady_clock::now() > end) break;
      pause_briefly();
      now = state.load(std::memory_order_acquire);
    }
  }
  while (!is_done(now)) {
    state.wait(now, std::memory_order_acquire);
    now = state.load(std::memory_order_acquire);
  }
  return now;
}

std::vector<int> allowed_processors() {
  // The set grows until the kernel's fits: machines may have more than CPU_SETSIZE processors.
  for (int size = CPU_SETSIZE; size <= (1 << 20); size *= 2) {
    cpu_set_t* set = CPU_ALLOC(static_cast<size_t>(size));
    if (set == nullptr) break;
    const size_t bytes = CPU_ALLOC_SIZE(static_cast<size_t>(size));
    std::vector<int> result;
    const bool known = ::sched_getaffinity(0, bytes, set) == 0;
    for (int i = 0; known && i < size; ++i) {
      if (CPU_ISSET_S(static_cast<size_t>(i), bytes, set)) result.push_back(i);
    }
    CPU_FREE(set);
    if (known) return result;
  }
  return {};
}

/// The processors of one core share this text; a processor without it stands for itself.
std::string core_of(int processor) {
  std::ifstream file(
      fmt::format("/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", processor));
  std::string siblings;
  if (!std::getline(file, siblings)) siblings = fmt::format("{}", processor);
  return siblings;
}

/// Processors that the cgroup's quota pays for, rounded up; `otherwise` where there is none.
size_t quota(size_t otherwise) {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  double allowed = 0;
  double period = 0;
  if (!(file >> allowed >> period) || period <= 0) return otherwise;  // "max": no number
  return std::max<size_t>(1, static_cast<size_t>((allowed + period - 1) / period));
}

void pin(int processor) {
  cpu_set_t* set = CPU_ALLOC(static_cast<size_t>(processor) + 1);
  if (set == nullptr) return;
  const size_t bytes = CPU_ALLOC_SIZE(static_cast<size_t>(processor) + 1);
  CPU_ZERO_S(bytes, set);
  CPU_SET_S(static_cast<size_t>(processor), bytes, set);
  // A refusal (the set of allowed processors has changed meanwhile) costs speed only.
  ::pthread_setaffinity_np(::pthread_self(), bytes, set);
  CPU_FREE(set);
}

}  // namespace

std::vector<int> compute_processors() {
  std::vector<int> processors;
  std::set<std::string> cores;
  for (const int processor : allowed_processors()) {
    if (cores.insert(core_of(processor)).second) processors.push_back(processor);
  }
  if (processors.empty()) processors.push_back(0);
  processors.resize(std::min(processors.size(), quota(processors.size())));
  return processors;
}

ThreadPool::ThreadPool(int num_threads, Pinning pinning) {
  std::vector<int> processors = compute_processors();
  num_threads_ = num_threads > 0 ? num_threads : static_cast<int>(processors.size());
  const auto wanted = static_cast<size_t>(num_threads_);
  // More threads than processors take turns: none may keep one busy by waiting, or stay on one.
  spins_ = wanted <= processors.size();
  if (pinning == Pinning::kCores && spins_ && wanted > 1) processors_ = std::move(processors);
  workers_.reserve(wanted - 1);
  try {
    for (int i = 1; i < num_threads_; ++i) {
      workers_.emplace_back([this, i] { work(i); });
    }
  } catch (const std::system_error& error) {
    const std::string why = error.code().message();
    stop_workers();
    fail(ErrorCode::kResourceExhausted, "cannot start {} threads: {}", num_threads_, why);
  }
}

ThreadPool::~ThreadPool() {
  stop_workers();
}

void ThreadPool::stop_workers() {
  stop_.store(true, std::memory_order_relaxed);
  state_.fetch_add(kLoopUnit, std::memory_order_release);
  state_.notify_all();
  for (std::thread& worker : workers_) worker.join();
  workers_.clear();
}

void ThreadPool::pin_caller() const {
  if (!processors_.empty()) pin(processors_[0]);
}

int ThreadPool::thread_index() {
  return current_index;
}

void ThreadPool::run_ranges() {
  for (;;) {
    const int64_t begin = next_.fetch_add(loop_.chunk, std::memory_order_relaxed);
    if (begin >= loop_.count) return;
    try {
      loop_.call(loop_.context, begin, std::min(begin + loop_.chunk, loop_.count));
    } catch (...) {
      const std::lock_guard lock(error_mutex_);
      if (!error_) error_ = std::current_exception();
    }
  }
}

void ThreadPool::work(int index) {
  current_index = index;
  if (!processors_.empty()) pin(processors_[static_cast<size_t>(index)]);
  uint32_t seen = 0;  // number of the last loop that this worker took part in or missed
  while (!stop_.load(std::memory_order_relaxed)) {
    uint32_t now = wait_for(state_, spins_, [&](uint32_t s) { return s / kLoopUnit != seen; });
    seen = now / kLoopUnit;
    // A loop may close, and the next one open, while this worker comes: it joins what is open.
    while ((now & kOpen) != 0) {
      if (!state_.compare_exchange_weak(now, now + 1, std::memory_order_acquire)) continue;
      seen = now / kLoopUnit;
      run_ranges();
      const uint32_t before = state_.fetch_sub(1, std::memory_order_release);
      if ((before & (kOpen | kWorkerMask)) == 1) state_.notify_all();  // closed, and the last one
      break;
    }
  }
}

void ThreadPool::run(Loop loop) {
  if (loop.count <= 0) return;
  // About four ranges a thread evens out unequal work without paying for many hand-overs.
  const int64_t ranges = int64_t{num_threads_} * 4;
  loop.chunk = std::max({loop.chunk, int64_t{1}, (loop.count + ranges - 1) / ranges});
  if (loop.chunk >= loop.count || workers_.empty()) {
    return loop.call(loop.context, 0, loop.count);
  }
  loop_ = loop;
  next_.store(0, std::memory_order_relaxed);
  state_.fetch_add(kLoopUnit | kOpen, std::memory_order_release);
  state_.notify_all();
  run_ranges();
  state_.fetch_and(~kOpen, std::memory_order_relaxed);
  wait_for(state_, spins_, [](uint32_t s) { return (s & kWorkerMask) == 0; });
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

}  // namespace deepinfer
