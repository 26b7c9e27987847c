// Exact skip, cone replay, snapshots and bounded replay on whole models: the same bits as a run of
// all rows through all layers.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "deepinfer/checkpoint.h"
#include "tests/checkpoint/temporary_directory.h"
#include "tests/model/prefix_runs.h"
#include "tests/support/tensors.h"

namespace deepinfer::model {
namespace {

constexpr uint64_t kSeed = 20261203;
constexpr int64_t kVocab = 500;

/// A random model, W = 32: two window layers, a source of ratio 2, then the last source and two
/// layers above it.
const std::filesystem::path& nano() {
  static const checkpoint::TemporaryDirectory directory;
  static const std::filesystem::path path = [] {
    synthesize_checkpoint({.preset = "nano",
                           .directory = directory / "nano",
                           .layers = 6,
                           .experts = 4,
                           .vocab_size = kVocab,
                           .engram_vocab_size = 50,
                           .seed = 1});
    return directory / "nano";
  }();
  return path;
}

std::filesystem::path tiny() {
  return std::filesystem::path(DEEPINFER_SOURCE_DIR) / "models" / "tiny-v41";
}

TEST(ExactSkip, EqualsAFullPrefillInAnyChunks) {
  SCOPED_TRACE(::testing::Message() << "seed " << kSeed);
  testing::Random random(kSeed);
  PrefixRuns runs(nano(), {.pages = 16, .snapshot_units = 4});
  for (const int64_t size : {1, 2, 33, 64, 65, 350}) {
    const Tokens tokens = random_tokens(random, size + 3, kVocab);
    const RunResult want = cold(runs, tokens, 3);
    for (const int64_t chunk : {7, 64, 1000}) {
      SCOPED_TRACE(::testing::Message() << size << " tokens in chunks of " << chunk);
      const RunResult got = runs.run(tokens, {.adopt = false, .chunk = chunk, .decoded = 3});
      expect_equal(got, want);
      if (size == 350) {
        EXPECT_LT(got.layer_rows, want.layer_rows * 4 / 5);
      }
    }
  }
}

TEST(ExactSkip, EqualsAFullPrefillOfTheTrainedModel) {
  testing::Random random(kSeed);
  PrefixRuns runs(tiny(), {.pages = 8});
  const Tokens tokens = random_tokens(random, 301, 4000);
  expect_equal(runs.run(tokens, {.adopt = false, .chunk = 100, .decoded = 1}),
               cold(runs, tokens, 1));
}

TEST(ConeReplay, RebuildsTheRingsOfEveryHit) {
  SCOPED_TRACE(::testing::Message() << "seed " << kSeed);
  testing::Random random(kSeed);
  PrefixRuns runs(nano(), {.pages = 20});
  const Tokens first = random_tokens(random, 385, kVocab);
  runs.run(first, {});
  for (const int64_t shared : {63, 65, 127, 129, 193, 319, 321, 383, 384}) {
    SCOPED_TRACE(::testing::Message() << shared << " shared tokens");
    const Tokens tokens = branch(random, first, shared, shared + 1 + random.below(70), kVocab);
    const RunResult got = runs.run(tokens, {.chunk = 90});
    EXPECT_GE(got.hit_tokens, shared / 64 * 64);
    if (shared == 383) {
      EXPECT_GT(got.start, 0);
    }
    expect_equal(got, cold(runs, tokens));
  }
  EXPECT_EQ(runs.prefixes().num_held(), 0);
}

TEST(Snapshots, AHitContinuesWhereTheSnapshotWasTaken) {
  SCOPED_TRACE(::testing::Message() << "seed " << kSeed);
  testing::Random random(kSeed);
  PrefixRuns runs(nano(), {.pages = 40, .snapshot_units = 24, .snapshot_interval = 128});
  const Tokens first = random_tokens(random, 385, kVocab);
  runs.run(first, {.decoded = 70});  // snapshots at 128, 256, the end of the prompt and beyond
  const RunResult again = runs.run(first, {.decoded = 1});
  EXPECT_EQ(again.start, 320);
  expect_equal(again, cold(runs, first, 1));
  for (const int64_t size : {130, 257, 260, 310, 384, 385}) {
    SCOPED_TRACE(::testing::Message() << size << " shared tokens");
    const Tokens tokens = branch(random, first, size, size + 50, kVocab);
    const RunResult got = runs.run(tokens, {.chunk = 50});
    // The one at 128 lacks decoder rings, which the short rest of the prompt needs.
    EXPECT_EQ(got.start, size < 256 ? 0 : size / 64 * 64);
    expect_equal(got, cold(runs, tokens));
  }
}

TEST(BoundedReplay, DependsOnThePromptAloneAndNotOnChunksOrHits) {
  SCOPED_TRACE(::testing::Message() << "seed " << kSeed);
  testing::Random random(kSeed);
  const PrefixRuns::Sizes sizes = {
      .pages = 40, .snapshot_units = 12, .keep_tokens = 44, .snapshot_interval = 64};
  PrefixRuns runs(nano(), sizes);
  const Tokens tokens = random_tokens(random, 300, kVocab);
  const RunResult want = runs.run(tokens, {.adopt = false, .decoded = 90});
  // It is not the exact result, and not far from it.
  EXPECT_FALSE(want.logits == cold(runs, tokens, 90).logits);
  for (const int64_t chunk : {13, 64}) {
    expect_equal(runs.run(tokens, {.adopt = false, .chunk = chunk, .decoded = 90}), want);
  }
  runs.run(branch(random, tokens, 200, 290, kVocab),
           {});  // another prompt length, snapshots on the way
  const RunResult hit = runs.run(tokens, {.chunk = 37, .decoded = 90});
  EXPECT_GT(hit.start, 0);
  expect_equal(hit, want);
  expect_equal(runs.run(tokens, {.decoded = 90}), want);
  // Preempted while it generates: the cut stays where the prompt ended.
  const RunResult resumed = runs.run(tokens, {.prompt = 210, .decoded = 10});
  EXPECT_GT(resumed.start, 0);
  EXPECT_TRUE(resumed.logits.back() == want.logits.back());
  EXPECT_TRUE(resumed.rings == want.rings);
}

}  // namespace
}  // namespace deepinfer::model
