#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

namespace deepinfer {
namespace {

TEST(ThreadPool, VisitsEveryItemOnce) {
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    for (const int64_t count : {0, 1, 127, 128, 129, 1001}) {
      std::vector<std::atomic<int>> visits(static_cast<size_t>(count));
      pool.parallel_for(count, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) ++visits[static_cast<size_t>(i)];
      });
      for (const auto& v : visits) EXPECT_EQ(v, 1);
    }
  }
}

TEST(ThreadPool, RethrowsAndStaysUsable) {
  ThreadPool pool(3);
  EXPECT_THROW(pool.parallel_for(100, 1,
                                 [](int64_t begin, int64_t) {
                                   if (begin == 0) throw std::runtime_error("x");
                                 }),
               std::runtime_error);
  std::atomic<int64_t> sum = 0;
  pool.parallel_for(100, 1, [&](int64_t begin, int64_t end) { sum += end - begin; });
  EXPECT_EQ(sum, 100);
}

TEST(ThreadPool, ShortLoopsOneAfterTheOtherLoseNothing) {
  for (const int threads : {2, 3, 8}) {
    ThreadPool pool(threads);
    for (int64_t loop = 0; loop < 3000; ++loop) {
      // Written by whoever takes the range, read here without further synchronisation.
      std::vector<int64_t> values(static_cast<size_t>(loop % 40), -1);
      pool.parallel_for(loop % 40, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) values[static_cast<size_t>(i)] = loop + i;
      });
      for (int64_t i = 0; i < loop % 40; ++i) {
        ASSERT_EQ(values[static_cast<size_t>(i)], loop + i) << threads << " threads";
      }
    }
  }
}

TEST(ThreadPool, ThreadsKnowTheirIndex) {
  ThreadPool pool(4, ThreadPool::Pinning::kCores);
  EXPECT_EQ(ThreadPool::thread_index(), 0);
  std::vector<std::atomic<int>> busy(4);
  pool.parallel_for(1000, 1, [&](int64_t, int64_t) {
    const int index = ThreadPool::thread_index();
    ASSERT_GE(index, 0);
    ASSERT_LT(index, 4);
    EXPECT_EQ(busy[static_cast<size_t>(index)]++, 0);  // no two threads have the same
    busy[static_cast<size_t>(index)]--;
  });
}

/// The processors that the calling thread may run on.
std::set<int> allowed() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::set<int> found;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return found;
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(static_cast<size_t>(i), &set)) found.insert(i);
  }
  return found;
}

/// Where each thread of the pool may run.
std::vector<std::set<int>> places(ThreadPool& pool) {
  std::vector<std::set<int>> found(static_cast<size_t>(pool.num_threads()));
  std::atomic<int> arrived = 0;
  pool.parallel_for(pool.num_threads(), 1, [&](int64_t, int64_t) {
    found[static_cast<size_t>(ThreadPool::thread_index())] = allowed();
    ++arrived;
    while (arrived < pool.num_threads()) std::this_thread::yield();  // one range per thread
  });
  return found;
}

TEST(ThreadPool, PinnedWorkersHaveAProcessorEach) {
  ThreadPool pool(0, ThreadPool::Pinning::kCores);
  if (pool.num_threads() == 1) GTEST_SKIP() << "one processor: there are no workers";
  const std::vector<int> processors = compute_processors();
  const std::vector<std::set<int>> found = places(pool);
  for (size_t i = 1; i < found.size(); ++i) {
    EXPECT_EQ(found[i], std::set<int>{processors[i]}) << "worker " << i;
  }
}

TEST(ThreadPool, MoreThreadsThanProcessorsArePinnedNowhere) {
  const int processors = static_cast<int>(compute_processors().size());
  ThreadPool pool(processors + 2, ThreadPool::Pinning::kCores);
  const std::set<int> all = allowed();
  for (const std::set<int>& place : places(pool)) EXPECT_EQ(place, all);
}

TEST(ThreadPool, ProcessorsAreDistinctAndSomeAreThere) {
  const std::vector<int> processors = compute_processors();
  ASSERT_FALSE(processors.empty());
  EXPECT_EQ(std::set<int>(processors.begin(), processors.end()).size(), processors.size());
  EXPECT_EQ(ThreadPool(0).num_threads(), static_cast<int>(processors.size()));
}

}  // namespace
}  // namespace deepinfer
