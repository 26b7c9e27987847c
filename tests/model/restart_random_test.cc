// 500 random prompts with shared prefixes: hit against cold.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "deepinfer/checkpoint.h"
#include "tests/checkpoint/temporary_directory.h"
#include "tests/model/prefix_runs.h"

namespace deepinfer::model {
namespace {

constexpr uint64_t kSeed = 20261204;
constexpr int64_t kVocab = 64;

/// Prompts that branch off one another, in a pool that holds a few of them; what is hit is compared
/// with a cold run.
TEST(PrefixHits, RandomPromptsEqualColdRuns) {
  SCOPED_TRACE(::testing::Message() << "seed " << kSeed);
  const checkpoint::TemporaryDirectory directory;
  // A nano model of four layers, one of them above the last source.
  synthesize_checkpoint({.preset = "nano",
                         .directory = directory / "small",
                         .layers = 4,
                         .experts = 3,
                         .vocab_size = kVocab,
                         .engram_vocab_size = 50,
                         .seed = 2});
  testing::Random random(kSeed);
  PrefixRuns runs(directory / "small", {.pages = 20, .snapshot_units = 9, .snapshot_interval = 64});
  std::vector<Tokens> prompts = {random_tokens(random, 140, kVocab)};
  int64_t hits = 0;
  int64_t restored = 0;
  for (int i = 0; i < 500; ++i) {
    const Tokens& base = prompts[static_cast<size_t>(random.below(std::ssize(prompts)))];
    const int64_t shared = random.below(3) > 0 ? std::ssize(base) : random.below(std::ssize(base));
    const int64_t size = 1 + std::min<int64_t>(shared + random.below(70), 170);
    const Tokens tokens = branch(random, base, std::min(shared, size), size, kVocab);
    SCOPED_TRACE(::testing::Message() << "prompt " << i << " of " << size << " tokens");
    const int64_t decoded = random.below(std::min<int64_t>(size, 3));
    const RunResult got = runs.run(tokens, {.chunk = 1 + random.below(120), .decoded = decoded});
    restored += got.start > 0 ? 1 : 0;
    if (got.hit_tokens > 0) {
      ++hits;
      expect_equal(got, cold(runs, tokens, decoded));
      if (HasFatalFailure()) return;
    }
    if (prompts.size() < 12) {
      prompts.push_back(tokens);
    } else {
      prompts[static_cast<size_t>(random.below(12))] = tokens;
    }
    ASSERT_EQ(runs.prefixes().num_held(), 0);
    ASSERT_EQ(runs.prefixes().snapshots().num_held(), 0);
  }
  EXPECT_GT(hits, 125);
  EXPECT_GT(restored, 62);
  EXPECT_GT(runs.prefixes().num_evictions(), 125);
}

}  // namespace
}  // namespace deepinfer::model
