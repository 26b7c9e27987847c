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

TEST_F(KvCacheTest, RestartsWithTheRingsOfASnapshot) {
  CacheShape shape = small_shape();
  shape.encoder_layers = 1;
  shape.num_snapshot_units = 2;
  shape.window = 8;  // 24 ring rows
  KvCache cache(*backend_, shape);
  // Position t's row holds t in slot 0; 104 tokens are committed, the boundary was at 100.
  for (int64_t layer = 0; layer < 2; ++layer) {
    const ops::WindowRings& rings = cache.rings(layer);
    for (int64_t t = 80; t < 104; ++t) {
      rings.codes.row<uint8_t>(0)[t % 24 * 64 + 3] = static_cast<uint8_t>(t + layer);
      rings.scales.row<uint8_t>(0)[t % 24 * 2 + 1] = static_cast<uint8_t>(t - layer);
      rings.tags.row<int64_t>(0)[t % 24] = t;
    }
  }
  cache.save_rings(0, {.encoder = 1, .decoder = 0});
  std::vector<std::byte> unit(static_cast<size_t>(shape.snapshot_unit_bytes()));
  cache.read_unit(0, unit);
  cache.write_unit(0, std::vector<std::byte>(unit.size()));
  cache.write_unit(0, unit);

  const std::vector<int32_t> tokens = {11, 12, 13, 14};  // 14 is at position 99
  const auto start = [&](const SnapshotUnits& units) {
    cache.reset_slot(1, {.position = 100, .tokens = tokens, .rings = units});
  };
  const auto tags = [&](int64_t layer, int64_t first) {
    std::vector<int64_t> want(24, -1);
    for (int64_t t = first; t < 100; ++t) want[static_cast<size_t>(t % 24)] = t;
    const auto* got = cache.rings(layer).tags.row<int64_t>(1);
    EXPECT_EQ(std::vector<int64_t>(got, got + 24), want) << layer;
  };
  start({.encoder = 1, .decoder = 0});
  EXPECT_EQ(cache.slots().committed.as<int64_t>()[1], 100);
  const auto* history = cache.slots().history.row<int32_t>(1);
  EXPECT_EQ(std::vector<int32_t>(history, history + 3), (std::vector<int32_t>{14, 13, 12}));
  for (int64_t layer = 0; layer < 2; ++layer) {
    tags(layer, 92);
    const ops::WindowRings& rings = cache.rings(layer);
    EXPECT_EQ(rings.codes.row<uint8_t>(1)[95 % 24 * 64 + 3], 95 + layer);
    EXPECT_EQ(rings.scales.row<uint8_t>(1)[95 % 24 * 2 + 1], 95 - layer);
  }
  start({.encoder = 1});
  tags(0, 92);
  tags(1, 100);
  start({.encoder = 1, .decoder = 0, .decoder_floor = 97});
  tags(1, 97);
}

TEST_F(KvCacheTest, RestartsNearTheBeginning) {
  KvCache cache(*backend_, small_shape());
  const std::vector<int32_t> tokens = {11, 12, 13, 14};
  cache.reset_slot(0, {.position = 2, .tokens = std::span(tokens).first(2)});
  const auto* history = cache.slots().history.row<int32_t>(0);
  EXPECT_EQ(std::vector<int32_t>(history, history + 3), (std::vector<int32_t>{12, 11, -1}));
}

TEST_F(KvCacheTest, PagesTravelAsBytes) {
  const CacheShape shape = small_shape();
  KvCache cache(*backend_, shape);
  std::vector<std::byte> bytes(static_cast<size_t>(shape.page_bytes()));
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 251);
  cache.write_page(1, bytes);
  std::vector<std::byte> back(bytes.size());
  cache.read_page(1, back);
  EXPECT_EQ(back, bytes);
  EXPECT_EQ(static_cast<std::byte>(cache.pages(0).entry_codes.row<uint8_t>(1)[5]), bytes[5]);
  cache.read_page(2, back);
  EXPECT_EQ(back, std::vector<std::byte>(bytes.size()));
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
