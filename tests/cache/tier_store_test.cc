#include "cache/tier_store.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <latch>
#include <stdexcept>
#include <string>
#include <vector>

#include "cache/disk_tier.h"
#include "tests/checkpoint/temporary_directory.h"

namespace deepinfer::cache {
namespace {

TierKey key_of(int64_t id) {
  return Sha256().add(std::as_bytes(std::span(&id, 1))).finish();
}

std::vector<std::byte> content_of(int64_t id) {
  return std::vector<std::byte>(100, static_cast<std::byte>(id));
}

void put(TierStore& store, int64_t id) {
  store.put(key_of(id), 100, [id] { return content_of(id); });
}

/// Waits for one load to end.
class Waiter {
 public:
  std::function<void()> callback() {
    return [this] {
      ++calls_;
      calls_.notify_all();
    };
  }
  TierStore::Loaded wait(TierStore& store, std::vector<TierKey> keys) {
    const int before = calls_;
    const TierStore::LoadId id = store.load(std::move(keys));
    calls_.wait(before);
    std::vector<TierStore::Loaded> loaded = store.take_loaded();
    EXPECT_EQ(loaded.size(), 1U);
    EXPECT_EQ(loaded.at(0).id, id);
    return std::move(loaded.at(0));
  }

 private:
  std::atomic<int> calls_ = 0;
};

TEST(HostTier, KeepsTheMostRecentlyUsed) {
  HostTier tier(350);
  const auto bytes = [](int64_t id) {
    return std::make_shared<const std::vector<std::byte>>(content_of(id));
  };
  for (int64_t id = 0; id < 3; ++id) tier.put(key_of(id), bytes(id));
  EXPECT_NE(tier.get(key_of(0)), nullptr);
  tier.put(key_of(3), bytes(3));
  EXPECT_TRUE(tier.contains(key_of(0)));
  EXPECT_FALSE(tier.contains(key_of(1)));
  EXPECT_EQ(tier.num_bytes(), 300);
  tier.put(key_of(4), std::make_shared<const std::vector<std::byte>>(351));
  EXPECT_FALSE(tier.contains(key_of(4)));
  EXPECT_EQ(tier.num_bytes(), 300);
}

TEST(TierStore, LoadsUpToTheFirstMiss) {
  Waiter waiter;
  std::vector<std::unique_ptr<Tier>> tiers;
  tiers.push_back(std::make_unique<HostTier>(10'000));
  TierStore store(std::move(tiers), waiter.callback());
  for (const int64_t id : {1, 2, 4}) put(store, id);
  store.flush();
  EXPECT_TRUE(store.contains(key_of(2)));
  EXPECT_FALSE(store.contains(key_of(3)));
  const auto loaded = waiter.wait(store, {key_of(1), key_of(2), key_of(3), key_of(4)});
  ASSERT_EQ(loaded.entries.size(), 2U);
  EXPECT_TRUE(*loaded.entries[1] == content_of(2));
  EXPECT_TRUE(waiter.wait(store, {key_of(9)}).entries.empty());
}

TEST(TierStore, WhatASlowerTierGivesGoesToTheFasterOnes) {
  const checkpoint::TemporaryDirectory directory;
  const auto open = [&](std::function<void()> on_loaded) {
    std::vector<std::unique_ptr<Tier>> tiers;
    tiers.push_back(std::make_unique<HostTier>(10'000));
    tiers.push_back(std::make_unique<DiskTier>(DiskTier::Options{
        .directory = directory.path(), .max_bytes = 100'000, .max_entry_bytes = 1000}));
    return std::make_unique<TierStore>(std::move(tiers), std::move(on_loaded));
  };
  Waiter waiter;
  put(*open(waiter.callback()), 7);  // the destructor flushes
  const auto store = open(waiter.callback());
  EXPECT_EQ(store->num_bytes()[0], 0);
  EXPECT_TRUE(*waiter.wait(*store, {key_of(7)}).entries.at(0) == content_of(7));
  EXPECT_EQ(store->num_bytes()[0], 100);
}

/// Throws whenever it is used.
class BrokenTier final : public Tier {
 public:
  bool contains(const TierKey&) const override { return false; }
  TierBytes get(const TierKey&) override { throw std::bad_alloc(); }
  void put(const TierKey&, const TierBytes&) override { throw std::runtime_error("no"); }
  int64_t num_bytes() const override { return 0; }
};

TEST(TierStore, ATierThatFailsIsAMiss) {
  Waiter waiter;
  std::vector<std::unique_ptr<Tier>> tiers;
  tiers.push_back(std::make_unique<BrokenTier>());
  TierStore store(std::move(tiers), waiter.callback());
  put(store, 1);
  store.flush();
  EXPECT_TRUE(waiter.wait(store, {key_of(1)}).entries.empty());
}

/// Waits at a latch before it answers.
class SlowTier final : public Tier {
 public:
  explicit SlowTier(std::latch& gate) : gate_(gate) {}
  bool contains(const TierKey&) const override { return false; }
  TierBytes get(const TierKey&) override { return nullptr; }
  void put(const TierKey&, const TierBytes&) override { gate_.wait(); }
  int64_t num_bytes() const override { return 0; }

 private:
  std::latch& gate_;
};

TEST(TierStore, DropsWhatIsTooMuchToWait) {
  std::latch gate(1);
  Waiter waiter;
  std::vector<std::unique_ptr<Tier>> tiers;
  tiers.push_back(std::make_unique<SlowTier>(gate));
  TierStore store(std::move(tiers), waiter.callback());
  for (int64_t id = 0; id < 5; ++id) {
    store.put(key_of(id), int64_t{100} << 20, [] { return std::vector<std::byte>(1); });
  }
  EXPECT_EQ(store.stats().dropped_entries, 3);
  gate.count_down();
}

TEST(TierStore, MayBeUsedWhileItsThreadWorks) {
  const checkpoint::TemporaryDirectory directory;
  std::vector<std::unique_ptr<Tier>> tiers;
  tiers.push_back(std::make_unique<HostTier>(2000));
  tiers.push_back(std::make_unique<DiskTier>(DiskTier::Options{.directory = directory.path(),
                                                               .max_bytes = 50'000,
                                                               .max_entry_bytes = 1000,
                                                               .segment_bytes = 5000}));
  std::atomic<int64_t> ended = 0;
  TierStore store(std::move(tiers), [&ended] { ++ended; });
  constexpr int64_t kRounds = 400;
  int64_t found = 0;
  for (int64_t id = 0; id < kRounds; ++id) {
    put(store, id);
    store.load({key_of(id / 2), key_of(id / 2 + 1)});
    found += store.contains(key_of(id / 3)) ? 1 : 0;
    for (const TierStore::Loaded& loaded : store.take_loaded()) {
      found += std::ssize(loaded.entries);
    }
  }
  store.flush();
  EXPECT_EQ(ended, kRounds);
  EXPECT_GE(found, 0);
  EXPECT_EQ(store.stats().stored_entries, kRounds);
}

}  // namespace
}  // namespace deepinfer::cache
