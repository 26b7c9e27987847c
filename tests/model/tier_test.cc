// Hits from host memory, from disk and after a restart: the same bits as cold runs.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "deepinfer/checkpoint.h"
#include "tests/checkpoint/temporary_directory.h"
#include "tests/model/prefix_runs.h"

namespace deepinfer::model {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kSeed = 20261205;
constexpr int64_t kVocab = 64;
constexpr int64_t kMiB = int64_t{1} << 20;

class Tiers : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    directory_ = new checkpoint::TemporaryDirectory;
    synthesize_checkpoint({.preset = "nano",
                           .directory = *directory_ / "nano",
                           .layers = 4,
                           .experts = 3,
                           .vocab_size = kVocab,
                           .engram_vocab_size = 50,
                           .seed = 3});
  }
  static void TearDownTestSuite() { delete directory_; }

  /// A pool that holds one prompt, so that the next one evicts it.
  PrefixRuns::Sizes sizes(int64_t host_bytes, const fs::path& folder = {}) const {
    return {.pages = 5,
            .snapshot_units = 4,
            .snapshot_interval = 128,
            .tiers = {.host_bytes = host_bytes,
                      .directory = folder,
                      .disk_bytes = folder.empty() ? 0 : 16 * kMiB,
                      .identity = "test"}};
  }
  static fs::path model() { return *directory_ / "nano"; }

  /// Runs `tokens` after a look into the tiers, and cold; returns the tokens that were cached.
  static int64_t run_and_compare(PrefixRuns& runs, const Tokens& tokens) {
    runs.prefetch(tokens);
    const RunResult got = runs.run(tokens, {.chunk = 100, .decoded = 1});
    expect_equal(got, cold(runs, tokens, 1));
    return got.start;
  }
  /// Fills the pool with something else.
  static void evict(PrefixRuns& runs, testing::Random& random) {
    runs.run(random_tokens(random, 320, kVocab), {.chunk = 320});
  }

  testing::Random random_{kSeed};
  Tokens prompt_ = random_tokens(random_, 280, kVocab);
  static checkpoint::TemporaryDirectory* directory_;
};
checkpoint::TemporaryDirectory* Tiers::directory_ = nullptr;

TEST_F(Tiers, AHitFromHostMemoryEqualsAColdRun) {
  PrefixRuns runs(model(), sizes(16 * kMiB));
  runs.run(prompt_, {.decoded = 1});
  runs.flush();
  evict(runs, random_);
  EXPECT_EQ(runs.prefixes().lookup(prompt_, "").pages.size(), 0U);
  EXPECT_EQ(run_and_compare(runs, prompt_), 256);
  for (const int64_t size : {65, 127, 129, 193, 257, 279}) {
    SCOPED_TRACE(::testing::Message() << size << " tokens");
    evict(runs, random_);
    const Tokens tokens = branch(random_, prompt_, size, size + 2, kVocab);
    runs.prefetch(tokens);
    EXPECT_EQ(static_cast<int64_t>(runs.prefixes().lookup(tokens, "").pages.size()), size / 64);
    run_and_compare(runs, tokens);
  }
  // Another salt finds nothing.
  evict(runs, random_);
  runs.prefetch(prompt_, "other");
  EXPECT_EQ(runs.prefixes().lookup(prompt_, "other").pages.size(), 0U);
  EXPECT_EQ(runs.prefixes().num_held(), 0);
  EXPECT_EQ(runs.prefixes().snapshots().num_held(), 0);
}

TEST_F(Tiers, AHitFromDiskAfterARestartEqualsAColdRun) {
  const checkpoint::TemporaryDirectory folder;
  {
    PrefixRuns runs(model(), sizes(0, folder.path()));
    runs.run(prompt_, {.decoded = 1});
  }
  PrefixRuns runs(model(), sizes(0, folder.path()));
  EXPECT_EQ(run_and_compare(runs, prompt_), 256);
  evict(runs, random_);
  EXPECT_EQ(run_and_compare(runs, branch(random_, prompt_, 200, 240, kVocab)), 128);
}

TEST_F(Tiers, ADamagedFileIsAMissAndTheNextHitIsRight) {
  const checkpoint::TemporaryDirectory folder;
  {
    PrefixRuns runs(model(), sizes(0, folder.path()));
    runs.run(prompt_, {.decoded = 1});
  }
  for (const auto& entry : fs::recursive_directory_iterator(folder.path())) {
    if (!entry.path().filename().string().starts_with("segment-")) continue;
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(56 + 64 + 70'000);  // in the second or a later page
    file.put('\x55');
    file.put('\xaa');
  }
  PrefixRuns runs(model(), sizes(0, folder.path()));
  const int64_t first = run_and_compare(runs, prompt_);
  EXPECT_LT(first, 256);
  runs.flush();
  evict(runs, random_);
  EXPECT_EQ(run_and_compare(runs, prompt_), 256);
}

TEST_F(Tiers, RandomPromptsThroughASmallPoolEqualColdRuns) {
  const checkpoint::TemporaryDirectory folder;
  int64_t cached = 0;
  std::vector<Tokens> prompts = {prompt_};
  for (int restart = 0; restart < 3; ++restart) {
    PrefixRuns runs(model(), sizes(kMiB, folder.path()));
    for (int i = 0; i < 14; ++i) {
      SCOPED_TRACE(::testing::Message() << "seed " << kSeed << ", run " << restart << ", " << i);
      const Tokens& base = prompts[static_cast<size_t>(random_.below(std::ssize(prompts)))];
      const int64_t shared = random_.below(std::ssize(base)) + 1;
      const int64_t size = std::min<int64_t>(shared + 2 + random_.below(60), 300);
      const Tokens tokens = branch(random_, base, std::min(shared, size), size, kVocab);
      cached += run_and_compare(runs, tokens);
      if (HasFatalFailure()) return;
      ASSERT_EQ(runs.prefixes().num_held(), 0);
      prompts.push_back(tokens);
    }
  }
  EXPECT_GT(cached, 600);
}

TEST_F(Tiers, ACancelledLoadIsIgnored) {
  PrefixRuns runs(model(), sizes(16 * kMiB));
  runs.run(prompt_, {.decoded = 1});
  runs.flush();
  evict(runs, random_);
  cache::CacheTiers& tiers = runs.tiers();
  const auto now = cache::CacheTiers::Clock::now();
  const auto load = tiers.start_load(prompt_, "", now);
  ASSERT_TRUE(load.has_value());
  tiers.cancel(*load);
  tiers.cancel(12345);
  runs.flush();
  EXPECT_TRUE(tiers.finish_loads(now).empty());
  // One that takes too long ends without its pages, and is ignored when it comes.
  {
    const std::lock_guard hold(runs.tier_gate());
    tiers.cancel(*tiers.start_load(prompt_, "", now));  // behind it the next one has to wait
    const auto late = tiers.start_load(prompt_, "", now);
    ASSERT_TRUE(late.has_value());
    EXPECT_TRUE(tiers.finish_loads(now).empty());
    const auto ended = tiers.finish_loads(now + 2 * cache::CacheTiers::kLoadTimeout);
    EXPECT_EQ(ended, std::vector{*late});
  }
  runs.flush();
  EXPECT_TRUE(tiers.finish_loads(now).empty());
  EXPECT_EQ(runs.prefixes().num_held(), 0);
}

TEST_F(Tiers, TransfersOfASkippedStepPublishNothing) {
  PrefixRuns runs(model(), sizes(16 * kMiB));
  runs.run(prompt_, {.decoded = 1});
  runs.flush();
  evict(runs, random_);
  runs.flush();
  cache::CacheTiers& tiers = runs.tiers();
  const auto now = cache::CacheTiers::Clock::now();
  for (const bool cancelled : {false, true}) {
    const auto load = tiers.start_load(prompt_, "", now);
    ASSERT_TRUE(load.has_value());
    tiers.flush();  // it has arrived
    EXPECT_TRUE(tiers.finish_loads(now).empty());
    auto transfers = tiers.take_transfers();
    ASSERT_NE(transfers, nullptr);
    EXPECT_GT(runs.prefixes().num_held(), 0);
    if (cancelled) {
      tiers.cancel(*load);
      EXPECT_GT(runs.prefixes().num_held(), 0);  // until the transfer has ended
      transfers->run(runs.caches());
    }
    tiers.finish_transfers(std::move(transfers));
    EXPECT_EQ(tiers.finish_loads(now).size(), cancelled ? 0U : 1U);
    EXPECT_EQ(runs.prefixes().num_held(), 0);
    EXPECT_EQ(runs.prefixes().snapshots().num_held(), 0);
    EXPECT_TRUE(runs.prefixes().lookup(prompt_, "").pages.empty());
  }
  EXPECT_EQ(run_and_compare(runs, prompt_), 256);
}

}  // namespace
}  // namespace deepinfer::model
