#include "cache/restart.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <vector>

namespace deepinfer::cache {
namespace {

RestartRules released() {
  return {.num_layers = 40, .last_source = 20, .window = 128, .page_tokens = 64};
}

/// `pages` published pages of zeros and snapshots at the ends of some of them.
struct Cached {
  Cached(const RestartRules& rules, int64_t pages, const std::vector<SnapshotInfo>& snapshots)
      : cache({.num_pages = std::max<int64_t>(pages, 1),
               .page_tokens = rules.page_tokens,
               .num_snapshot_units = 2 * static_cast<int64_t>(snapshots.size()),
               .identity = ""}) {
    PageRef parent;
    const std::vector<int32_t> tokens(static_cast<size_t>(rules.page_tokens), 0);
    for (int64_t i = 0; i < pages; ++i) {
      parent = cache.insert(parent, "", tokens, *cache.acquire());
      for (const SnapshotInfo& info : snapshots) {
        if (info.num_tokens != (i + 1) * rules.page_tokens) continue;
        cache.attach(parent, *cache.snapshots().acquire(info));
      }
    }
    match =
        cache.lookup(std::vector<int32_t>(static_cast<size_t>(pages * rules.page_tokens), 0), "");
  }

  PrefixCache cache;
  PrefixCache::Match match;
};

Restart restart_of(const RestartRules& rules, const Cached& cached, const RestartRequest& request) {
  return plan_restart(rules, cached.cache.snapshots(), cached.match, request);
}

TEST(Restart, SkipsTheDecoderHalfOfALongPrompt) {
  RestartRules rules = released();
  rules.takes_snapshots = false;
  const Cached none(rules, 0, {});
  const Restart restart = restart_of(rules, none, {.num_tokens = 16384, .prompt_tokens = 16384});
  EXPECT_EQ(restart.start, 0);
  EXPECT_EQ(restart.first[20], 0);
  EXPECT_EQ(16384 - restart.first[21], 2414);  // serving.md §2.10
  EXPECT_EQ(16384 - restart.first[39], 128);
  EXPECT_EQ(restart.depth(0), 21);
  EXPECT_EQ(restart.depth(16383), 40);
  // With the end's snapshot the cone ends at the last page boundary.
  rules.takes_snapshots = true;
  EXPECT_EQ(restart_of(rules, none, {.num_tokens = 16384, .prompt_tokens = 16384}).first[39],
            16384 - 64 - 128);
}

TEST(Restart, ReplaysTheConeBeforeAHit) {
  const RestartRules rules = released();
  const Cached hit(rules, 1000, {});
  const Restart restart = restart_of(rules, hit, {.num_tokens = 64001, .prompt_tokens = 64001});
  EXPECT_EQ(restart.hit_tokens, 64000);
  EXPECT_EQ(restart.start, 64000 - 5081);  // serving.md §2.10
  // A long rest of the prompt needs no decoder ring of the hit, only the encoder's.
  const Restart longer = restart_of(rules, hit, {.num_tokens = 70000, .prompt_tokens = 70000});
  EXPECT_EQ(longer.start, 64000 - 20 * 127);
}

TEST(Restart, TakesTheNearestSnapshotThatServes) {
  const RestartRules rules = released();
  const Cached hit(rules, 100,
                   {{.num_tokens = 2048, .has_decoder = true},
                    {.num_tokens = 4096},
                    {.num_tokens = 5120, .has_decoder = true, .decoder_prompt = 5200}});
  // Decoder rows of a short rest begin before 4,096, and a bounded request's rings are not exact.
  const Restart close = restart_of(rules, hit, {.num_tokens = 6401, .prompt_tokens = 6401});
  EXPECT_EQ(close.start, 2048);
  EXPECT_FALSE(close.restores_decoder);  // row 3,986 is the first
  EXPECT_EQ(close.hit_tokens, 6400);
  // Of a long rest they begin after it.
  const Restart far = restart_of(rules, hit, {.num_tokens = 8000, .prompt_tokens = 8000});
  EXPECT_EQ(far.start, 5120);
  EXPECT_FALSE(far.restores_decoder);
}

TEST(Restart, BoundedReplayCutsWhereThePromptSaysSo) {
  RestartRules rules = released();
  rules.keep_tokens = 140;
  const Cached none(rules, 0, {});
  const Restart restart = restart_of(rules, none, {.num_tokens = 5000, .prompt_tokens = 5000});
  EXPECT_EQ(restart.first[20], 0);
  EXPECT_EQ(restart.first[21], 4860);
  // After 10 more tokens it resumes with the same cut.
  EXPECT_EQ(restart_of(rules, none, {.num_tokens = 5010, .prompt_tokens = 5000}).first[21], 4860);
  // Decoder rings of another prompt length are not adopted.
  const Cached hit(rules, 78,
                   {{.num_tokens = 4800},
                    {.num_tokens = 4928, .has_decoder = true, .decoder_prompt = 5000},
                    {.num_tokens = 4992, .has_decoder = true, .decoder_prompt = 5001}});
  EXPECT_EQ(restart_of(rules, hit, {.num_tokens = 5000, .prompt_tokens = 5000}).start, 4928);
  EXPECT_EQ(restart_of(rules, hit, {.num_tokens = 5010, .prompt_tokens = 5010}).start, 4800);
}

TEST(Restart, ScoringRunsEverything) {
  const RestartRules rules = released();
  const Restart restart = restart_of(rules, Cached(rules, 10, {}),
                                     {.num_tokens = 700, .prompt_tokens = 700, .all_logits = true});
  EXPECT_EQ(restart.start, 0);
  EXPECT_EQ(restart.hit_tokens, 0);
  EXPECT_EQ(restart.depth(0), 40);
}

TEST(Restart, SnapshotsComeAtIntervalsAndAtTheEnd) {
  const RestartRules rules = released();
  EXPECT_EQ(next_snapshot(rules, 0, 5000), 2048);
  EXPECT_EQ(next_snapshot(rules, 2048, 5000), 4096);
  EXPECT_EQ(next_snapshot(rules, 4096, 5000), 4992);
  EXPECT_EQ(next_snapshot(rules, 4992, 5000), std::nullopt);
  EXPECT_EQ(next_snapshot(rules, 0, 64), std::nullopt);  // nothing would be left to compute
  EXPECT_EQ(next_snapshot(rules, 0, 65), 64);
}

/// Runs a restart symbolically: which keys are in the rings of each layer, and which of them are
/// right. A key or an output is right if everything that it reads is.
class Simulation {
 public:
  Simulation(const RestartRules& rules, const Restart& restart, const RestartRequest& request)
      : rules_(rules),
        floor_(rules.keep_tokens > 0
                   ? std::max<int64_t>(0, request.prompt_tokens - rules.keep_tokens)
                   : 0),
        keys_(static_cast<size_t>(rules.num_layers)) {
    if (restart.snapshot) restore(restart);
    for (int64_t t = restart.start; t < request.num_tokens; ++t) run_row(restart, request, t);
  }

  bool logits_are_right() const { return logits_; }
  int64_t pages_from() const { return pages_from_; }
  /// Whether layer l's ring is complete where `boundary` tokens are committed.
  bool is_complete(int64_t l, int64_t boundary) const {
    for (int64_t t = oldest(l, boundary - 1, rules_.window); t < boundary; ++t) {
      if (!keys_[static_cast<size_t>(l)].contains(t)) return false;
    }
    return true;
  }

 private:
  int64_t oldest(int64_t l, int64_t t, int64_t window) const {
    return std::max(t - window + 1, l > rules_.last_source ? floor_ : 0);
  }

  void restore(const Restart& restart) {
    for (int64_t l = 0; l < rules_.num_layers; ++l) {
      if (l > rules_.last_source && !restart.restores_decoder) continue;
      for (int64_t t = oldest(l, restart.start - 1, rules_.window); t < restart.start; ++t) {
        keys_[static_cast<size_t>(l)].insert(t);
      }
    }
  }

  void run_row(const Restart& restart, const RestartRequest& request, int64_t t) {
    const bool last = t == request.num_tokens - 1;
    bool right = true;  // the row's input
    for (int64_t l = 0; l < restart.depth(t); ++l) {
      if (l == rules_.last_source && t >= restart.hit_tokens && right) {
        pages_from_ = std::min(pages_from_, t);
      }
      if (right) keys_[static_cast<size_t>(l)].insert(t);
      // All of its window, and nothing below the floor.
      const auto& keys = keys_[static_cast<size_t>(l)];
      for (int64_t u = oldest(l, t, rules_.window); u <= t; ++u) right = right && keys.contains(u);
      if (l > rules_.last_source) right = right && (keys.empty() || *keys.begin() >= floor_);
      if (last && l == rules_.num_layers - 1) logits_ = right;
    }
  }

  RestartRules rules_;
  int64_t floor_;
  std::vector<std::set<int64_t>> keys_;  // positions of the right keys of each layer
  bool logits_ = false;
  int64_t pages_from_ = INT64_MAX;
};

TEST(Restart, RunsAllThatIsNeededAndNothingBelowIt) {
  constexpr unsigned kSeed = 3;
  std::mt19937 random(kSeed);
  const auto below = [&](int64_t bound) { return static_cast<int64_t>(random()) % bound; };
  int64_t adopted = 0;
  for (int round = 0; round < 3000; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << kSeed << ", round " << round);
    RestartRules rules = {.num_layers = 1 + below(6), .page_tokens = 4};
    rules.last_source = below(rules.num_layers);
    rules.window = 1 + below(7);
    rules.takes_snapshots = below(4) > 0;
    rules.keep_tokens = below(2) * (rules.window + below(6));
    RestartRequest request = {.num_tokens = 1 + below(90)};
    request.prompt_tokens = 1 + below(request.num_tokens);
    const int64_t pages = below((request.num_tokens - 1) / 4 + 1);
    std::vector<SnapshotInfo> snapshots;
    for (int64_t page = 1; page <= pages; ++page) {
      if (below(4) > 0) continue;
      SnapshotInfo info = {.num_tokens = 4 * page, .has_decoder = below(2) == 0};
      if (info.has_decoder && rules.keep_tokens > 0) {
        info.decoder_prompt = request.prompt_tokens + below(2);
      }
      snapshots.push_back(info);
    }
    const Cached cached(rules, pages, snapshots);
    const Restart restart = restart_of(rules, cached, request);
    if (restart.snapshot) ++adopted;
    ASSERT_LT(restart.start, request.num_tokens);
    ASSERT_TRUE(std::ranges::is_sorted(restart.first));

    const Simulation run(rules, restart, request);
    EXPECT_TRUE(run.logits_are_right());
    EXPECT_EQ(run.pages_from(), restart.hit_tokens);
    // Complete rings at the end, for the tokens that follow, and what snapshots will claim.
    const int64_t end = (request.num_tokens - 1) / 4 * 4;
    for (int64_t boundary = std::max<int64_t>(restart.hit_tokens, 4); boundary <= end;
         boundary += 4) {
      const auto info = snapshot_info(rules, restart, request, boundary);
      bool encoder = true;
      bool decoder = true;
      for (int64_t l = 0; l < rules.num_layers; ++l) {
        (l > rules.last_source ? decoder : encoder) &= run.is_complete(l, boundary);
      }
      EXPECT_LE(info.has_value(), encoder) << boundary;
      EXPECT_LE(info && info->has_decoder, decoder) << boundary;
      if (rules.takes_snapshots && boundary == end) {
        EXPECT_TRUE(info.has_value() && decoder);
        const int64_t floor = std::max<int64_t>(0, request.prompt_tokens - rules.keep_tokens);
        EXPECT_TRUE(info->has_decoder || (rules.keep_tokens > 0 && boundary <= floor));
      }
    }
    for (int64_t l = 0; l < rules.num_layers; ++l) {
      EXPECT_TRUE(run.is_complete(l, request.num_tokens)) << "layer " << l;
    }
  }
  EXPECT_GT(adopted, 300);
}

}  // namespace
}  // namespace deepinfer::cache
