#include "cache/kv_cache.h"

#include <gtest/gtest.h>

#include "base/thread_pool.h"

namespace deepinfer::cache {
namespace {

CacheShape released_shape() {
  CacheShape shape;
  shape.num_layers = 40;
  shape.window = 128;
  shape.head_dim = 512;
  shape.index_head_dim = 128;
  shape.source_ratios = {2, 2, 2, 1};
  shape.ngram = 4;
  return shape;
}

TEST(CacheShape, Takes890BytesPerTokenInTheRelease) {
  EXPECT_EQ(released_shape().page_bytes(), 890 * kPageTokens);
}

TEST(CacheShape, CountsRingsAndOpenPairsOfASlot) {
  const int64_t rings =
      40 * (128 + kRingSlack) * (528 + 8);  // 528 B a row (spec/model.md §6) and its tag
  const int64_t pairs = 3 * ops::kPendingRows * 2 * 512 * 4;
  EXPECT_EQ(released_shape().slot_bytes(), rings + pairs);
}

class KvCacheTest : public testing::Test {
 protected:
  static CacheShape small_shape() {
    CacheShape shape = released_shape();
    shape.num_layers = 2;
    shape.head_dim = 64;
    shape.index_head_dim = 32;
    shape.num_slots = 2;
    shape.num_pages = 3;
    shape.max_slot_tokens = 130;
    return shape;
  }

  ThreadPool pool_{1};
  std::unique_ptr<ops::Backend> backend_ =
      ops::make_reference_backend(ops::Numerics::kEngine, pool_);
};

TEST_F(KvCacheTest, StartsWithEmptySlots) {
  const KvCache cache(*backend_, small_shape());
  EXPECT_EQ(cache.slots().page_table.dim(1), 3);
  for (int64_t slot = 0; slot < 2; ++slot) {
    EXPECT_EQ(cache.slots().committed.as<int64_t>()[slot], 0);
    EXPECT_EQ(cache.slots().page_table.row<int32_t>(slot)[2], -1);
    EXPECT_EQ(cache.slots().history.row<int32_t>(slot)[2], -1);
    EXPECT_EQ(cache.rings(1).tags.row<int64_t>(slot)[143], -1);
  }
}

TEST_F(KvCacheTest, ResetForgetsOneSlotOnly) {
  KvCache cache(*backend_, small_shape());
  for (int32_t slot = 0; slot < 2; ++slot) {
    cache.assign_page(slot, 1, slot + 1);
    cache.slots().committed.as<int64_t>()[slot] = 70;
    cache.slots().history.row<int32_t>(slot)[0] = 9;
    cache.rings(0).tags.row<int64_t>(slot)[5] = 5;
  }
  cache.reset_slot(0);
  EXPECT_EQ(cache.slots().committed.as<int64_t>()[0], 0);
  EXPECT_EQ(cache.slots().page_table.row<int32_t>(0)[1], -1);
  EXPECT_EQ(cache.slots().history.row<int32_t>(0)[0], -1);
  EXPECT_EQ(cache.rings(0).tags.row<int64_t>(0)[5], -1);
  EXPECT_EQ(cache.slots().committed.as<int64_t>()[1], 70);
  EXPECT_EQ(cache.slots().page_table.row<int32_t>(1)[1], 2);
  EXPECT_EQ(cache.rings(0).tags.row<int64_t>(1)[5], 5);
}

TEST_F(KvCacheTest, HasOpenPairsForRatio2SourcesOnly) {
  const KvCache cache(*backend_, small_shape());
  EXPECT_FALSE(cache.pending(0).empty());
  EXPECT_TRUE(cache.pending(3).empty());
  EXPECT_EQ(cache.pages(0).entry_codes.dim(1), kPageTokens / 2);
  EXPECT_EQ(cache.pages(3).entry_codes.dim(1), kPageTokens);
}

}  // namespace
}  // namespace deepinfer::cache
