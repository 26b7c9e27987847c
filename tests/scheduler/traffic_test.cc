#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "tests/scheduler/simulation.h"

// Random traffic over a simulated device that knows what every page holds: nothing leaks, starves,
// exceeds a budget, is computed twice or from a wrong page.
namespace deepinfer::scheduler {
namespace {

class Traffic {
 public:
  explicit Traffic(uint64_t seed) : random_(seed) {}

  int64_t below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }

  /// Prompts share prefixes: they are cut from a few texts and go on at random.
  SimulatedRequest request(int64_t max_prompt, int64_t max_output, int64_t max_drafts) {
    SimulatedRequest request;
    request.prompt = 1 + below(max_prompt);
    request.end = request.prompt + 1 + below(max_output);
    const int64_t text = below(4);
    const int64_t shared = below(request.prompt + 1);
    for (int64_t t = 0; t < request.prompt; ++t) {
      request.tokens.push_back(
          static_cast<int32_t>(t < shared ? text * 1000 + t % 7 : 10000 + below(1000)));
    }
    request.score = below(8) == 0;
    if (request.score) request.end = request.prompt;
    request.drafts = max_drafts == 0 ? 0 : below(max_drafts + 1);
    request.priority = below(5) == 0 ? below(5) - 2 : 0;
    if (below(6) == 0) request.salt = "tenant";
    return request;
  }

 private:
  std::mt19937_64 random_;
};

Simulation::Options options_of(uint64_t seed, Traffic& traffic) {
  Simulation::Options options;
  options.limits = {.max_prefill_rows = 1 + traffic.below(40),
                    .max_score_rows = 1 + traffic.below(8),
                    .max_running = 1 + traffic.below(8),
                    .max_verify_rows = 1 + traffic.below(6),
                    .ring_slack = 16,
                    .history = traffic.below(4)};
  options.rules = {.num_layers = 4,
                   .last_source = traffic.below(4),
                   .window = 1 + traffic.below(6),
                   .page_tokens = 4,
                   .keep_tokens = traffic.below(3) == 0 ? 8 : 0,
                   .snapshot_interval = 4 * (1 + traffic.below(5)),
                   .takes_snapshots = traffic.below(4) != 0};
  options.num_pages = 16 + traffic.below(30);
  options.num_snapshot_units = traffic.below(12);
  options.depth = 1 + static_cast<size_t>(traffic.below(4));
  options.seed = seed;
  options.fault_rate = traffic.below(3) == 0 ? 0.02 : 0;
  return options;
}

/// No request here has more than 160 tokens, and one that is first by key moves in every step but
/// those that it waits for others to land.
constexpr int64_t kMostStepsAsFirst = 160;

TEST(SchedulerTraffic, RandomTrafficLeaksNothingAndStarvesNobody) {
  int64_t most_verified = 0;
  int64_t faults = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    Traffic traffic(seed);
    const Simulation::Options options = options_of(seed, traffic);
    Simulation run(options);
    RequestId last = 0;
    for (int step = 0; step < 300; ++step) {
      if (traffic.below(3) == 0) {
        last = run.add(traffic.request(40, 20, options.limits.max_verify_rows - 1));
      }
      if (traffic.below(9) == 0) {
        run.cancel(1 + static_cast<RequestId>(traffic.below(static_cast<int64_t>(last) + 1)));
      }
      ASSERT_NO_FATAL_FAILURE(run.step());
    }
    ASSERT_NO_FATAL_FAILURE(run.finish(20000));
    EXPECT_LE(run.longest_as_first(), kMostStepsAsFirst);
    most_verified = std::max(most_verified, run.most_verified());
    faults += run.num_faults();
  }
  EXPECT_EQ(most_verified, 6);
  EXPECT_GT(faults, 0);
}

// E06: pages of 4, 3 drafts, a window of 8, 40 pages: after every one of 10,000 steps the totals
// add up, no page has two owners, and nothing is held at the end.
TEST(SchedulerTraffic, DraftsAndAWindowLeakNoPage) {
  Traffic traffic(6);
  Simulation run({.limits = {.max_prefill_rows = 24,
                             .max_score_rows = 4,
                             .max_running = 6,
                             .max_verify_rows = 4,
                             .ring_slack = 16,
                             .history = 3},
                  .rules = {.num_layers = 3,
                            .last_source = 1,
                            .window = 8,
                            .page_tokens = 4,
                            .snapshot_interval = 16},
                  .num_pages = 40,
                  .seed = 6});
  RequestId last = 0;
  for (int step = 0; step < 10000; ++step) {
    if (traffic.below(4) == 0) last = run.add(traffic.request(30, 30, 3));
    if (traffic.below(11) == 0) {
      run.cancel(1 + static_cast<RequestId>(traffic.below(static_cast<int64_t>(last) + 1)));
    }
    ASSERT_NO_FATAL_FAILURE(run.step());
  }
  ASSERT_NO_FATAL_FAILURE(run.finish(200000));
  EXPECT_GT(run.cache().num_evictions(), 0);
  EXPECT_GT(run.scheduler().num_preemptions(), 0);
}

/// Ten thousand requests that come faster than they can be served for a while.
Simulation::Options crowd() {
  return {.limits = {.max_prefill_rows = 256,
                     .max_score_rows = 32,
                     .max_running = 64,
                     .max_verify_rows = 6,
                     .ring_slack = 16,
                     .history = 3},
          .rules = {.num_layers = 8,
                    .last_source = 4,
                    .window = 16,
                    .page_tokens = 16,
                    .snapshot_interval = 64},
          .num_pages = 150,
          .num_snapshot_units = 100,
          .depth = 2,
          .seed = 20261201};
}

void run_crowd(Simulation& run, int64_t num_requests) {
  Traffic traffic(7);
  int64_t added = 0;
  while (added < num_requests) {
    for (int64_t i = traffic.below(6); i > 0 && added < num_requests; --i, ++added) {
      run.add(traffic.request(120, 40, 5));
    }
    if (traffic.below(10) == 0) {
      run.cancel(1 + static_cast<RequestId>(traffic.below(added + 1)));
    }
    ASSERT_NO_FATAL_FAILURE(run.step());
  }
  ASSERT_NO_FATAL_FAILURE(run.finish(1000 * num_requests));
}

TEST(SchedulerTraffic, TenThousandRequestsEndAndTheTraceRepeats) {
  Simulation run(crowd());
  ASSERT_NO_FATAL_FAILURE(run_crowd(run, 10000));
  EXPECT_GT(run.finished().size(), 9000U);
  EXPECT_GT(run.scheduler().num_preemptions(), 0);
  EXPECT_GT(run.scheduler().num_cached_tokens(), 0);
  EXPECT_LE(run.longest_as_first(), kMostStepsAsFirst);
  EXPECT_EQ(run.most_verified(), 6);
  Simulation again(crowd());
  ASSERT_NO_FATAL_FAILURE(run_crowd(again, 10000));
  EXPECT_EQ(again.trace(), run.trace());
  EXPECT_EQ(again.finished(), run.finished());
}

}  // namespace
}  // namespace deepinfer::scheduler
