#include "cache/index_pool.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <utility>
#include <vector>

namespace deepinfer::cache {
namespace {

TEST(IndexPool, HandsOutTheLowestFreeIndex) {
  IndexPool pool(3);
  IndexHandle a = *pool.allocate();
  const IndexHandle b = *pool.allocate();
  EXPECT_EQ(a.index(), 0);
  EXPECT_EQ(b.index(), 1);
  a = IndexHandle();
  EXPECT_EQ(pool.allocate()->index(), 0);
  EXPECT_EQ(pool.num_free(), 2);
}

TEST(IndexPool, ReturnsNothingWhenExhausted) {
  IndexPool pool(1);
  const auto only = pool.allocate();
  EXPECT_TRUE(only.has_value());
  EXPECT_FALSE(pool.allocate().has_value());
  IndexPool none(0);
  EXPECT_FALSE(none.allocate().has_value());
}

TEST(IndexPool, HasOneOwnerPerIndexUnderRandomSteps) {
  constexpr unsigned kSeed = 1;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  std::mt19937 random(kSeed);
  IndexPool pool(40);
  std::vector<IndexHandle> held;
  for (int step = 0; step < 10000; ++step) {
    if (random() % 2 == 0) {
      if (auto handle = pool.allocate()) held.push_back(std::move(*handle));
    } else if (!held.empty()) {
      std::swap(held[random() % held.size()], held.back());
      held.pop_back();
    }
    std::set<int32_t> owned;
    for (const IndexHandle& handle : held) owned.insert(handle.index());
    ASSERT_EQ(owned.size(), held.size());
    ASSERT_EQ(pool.num_free() + static_cast<int64_t>(held.size()), pool.size());
  }
  held.clear();
  EXPECT_EQ(pool.num_free(), pool.size());
}

}  // namespace
}  // namespace deepinfer::cache
