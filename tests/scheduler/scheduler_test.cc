#include "scheduler/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/scheduler/simulation.h"

namespace deepinfer::scheduler {
namespace {

Simulation::Options small() {
  return {.limits = {.max_prefill_rows = 10,
                     .max_score_rows = 4,
                     .max_running = 4,
                     .ring_slack = 16,
                     .history = 2},
          .rules = {.num_layers = 3,
                    .last_source = 1,
                    .window = 4,
                    .page_tokens = 4,
                    .snapshot_interval = 16},
          .num_pages = 100};
}

SimulatedRequest request(int64_t prompt, int64_t output, int32_t token = 7) {
  return {.tokens = std::vector<int32_t>(static_cast<size_t>(prompt), token),
          .prompt = prompt,
          .end = prompt + output};
}

SimulatedRequest scored(int64_t prompt) {
  SimulatedRequest scored = request(prompt, 0);
  scored.score = true;
  return scored;
}

int64_t rows_of(const BatchPlan& plan, RequestId id) {
  for (const PlanSpan& span : plan.spans) {
    if (span.request == id) return span.num_tokens;
  }
  return 0;
}

TEST(Scheduler, MixesGenerationWithPromptChunks) {
  Simulation run(small());
  run.add(request(3, 20));
  run.step();
  run.add(request(25, 2, 8));
  for (int i = 0; i < 3; ++i) ASSERT_NO_FATAL_FAILURE(run.step());
  EXPECT_EQ(run.scheduler().num_running(), 2);
  ASSERT_NO_FATAL_FAILURE(run.finish(100));
}

TEST(Scheduler, PlansTheNextStepBeforeTheLastHasLanded) {
  Simulation::Options options = small();
  cache::PrefixCache cache({.num_pages = 100, .page_tokens = 4, .identity = ""});
  Scheduler scheduler(options.limits, options.rules, cache);
  const std::vector<int32_t> prompt = {1, 2, 3};
  scheduler.add(1, {.tokens = prompt, .max_tokens = 6});
  BatchPlan first, second, third, fourth;
  scheduler.plan(first);
  EXPECT_EQ(rows_of(first, 1), 3);
  scheduler.plan(second);  // its token is on the device only
  ASSERT_EQ(second.rows.size(), 1U);
  EXPECT_EQ(second.rows[0].role, ops::RowRole::kDecode);
  EXPECT_EQ(second.rows[0].token, -1);
  scheduler.plan(third);
  EXPECT_EQ(rows_of(third, 1), 1);
  // Three tokens are on their way: nothing beyond the limit is computed.
  scheduler.plan(fourth);
  EXPECT_TRUE(fourth.empty());
  for (BatchPlan* plan : {&first, &second, &third}) {
    EXPECT_TRUE(scheduler.land(plan->spans[0], std::vector<int32_t>{9}));
  }
  scheduler.remove(1);
  EXPECT_EQ(cache.num_held(), 0);
}

TEST(Scheduler, KeepsSlotAndPagesUntilTheLastStepHasLanded) {
  Simulation::Options options = small();
  cache::PrefixCache cache({.num_pages = 100, .page_tokens = 4, .identity = ""});
  Scheduler scheduler(options.limits, options.rules, cache);
  const std::vector<int32_t> prompt(9, 1);
  scheduler.add(1, {.tokens = prompt, .max_tokens = 20});
  BatchPlan first, second;
  scheduler.plan(first);
  scheduler.plan(second);
  scheduler.land(first.spans[0], std::vector<int32_t>{5});
  scheduler.remove(1);  // the end was found while the second step ran
  EXPECT_EQ(cache.num_held(), 3);
  EXPECT_EQ(scheduler.num_requests(), 1);
  EXPECT_FALSE(scheduler.land(second.spans[0], std::vector<int32_t>{6}));
  EXPECT_EQ(cache.num_held(), 0);
  EXPECT_EQ(cache.num_cached(), 2);  // complete pages wait for the next request
  EXPECT_EQ(scheduler.num_requests(), 0);
}

TEST(Scheduler, RowsOfOneSlotFollowEachOtherAcrossChunks) {
  for (const int64_t chunk : {1, 2, 9, 10, 11, 100}) {
    Simulation::Options options = small();
    options.limits.max_prefill_rows = chunk;
    Simulation run(options);
    run.add(request(37, 5));
    ASSERT_NO_FATAL_FAILURE(run.finish(200));
  }
}

TEST(Scheduler, PreemptsTheLastAndFinishesEveryone) {
  Simulation::Options options = small();
  options.num_pages = 6;  // 24 tokens
  Simulation run(options);
  for (int32_t i = 0; i < 4; ++i) run.add(request(3, 12, i));
  ASSERT_NO_FATAL_FAILURE(run.finish(500));
  EXPECT_GT(run.scheduler().num_preemptions(), 0);
  EXPECT_EQ(run.finished().front(), 1U);
}

TEST(Scheduler, PutsHigherPriorityFirstAndNobodyLast) {
  Simulation::Options options = small();
  options.limits.max_running = 1;
  Simulation run(options);
  std::vector<RequestId> order;
  run.add(request(4, 3));
  for (const int64_t priority : {0, 0, 2, 1}) {
    SimulatedRequest next = request(4, 3);
    next.priority = priority;
    run.add(next);
  }
  ASSERT_NO_FATAL_FAILURE(run.finish(500));
  EXPECT_EQ(run.finished(), (std::vector<RequestId>{4, 5, 1, 2, 3}));
}

TEST(Scheduler, WaitingOutweighsPriorityInTheEnd) {
  Simulation::Options options = small();
  options.limits.max_running = 1;
  Simulation run(options);
  // A stream of urgent requests that alone would keep the device busy for ever.
  int64_t steps = 0;
  SimulatedRequest first = request(4, 4);
  first.priority = 2;
  run.add(first);
  const RequestId patient = run.add(request(4, 3));
  while (std::ranges::find(run.finished(), patient) == run.finished().end()) {
    ASSERT_LT(++steps, 4 * Scheduler::kAgingSteps) << "a request starves";
    if (steps % 3 == 0) {
      SimulatedRequest urgent = request(4, 4);
      urgent.priority = 2;
      run.add(urgent);
    }
    ASSERT_NO_FATAL_FAILURE(run.step());
  }
  EXPECT_GT(steps, Scheduler::kAgingSteps);
}

TEST(Scheduler, ScoresInStepsOfItsOwnBudget) {
  Simulation run(small());
  run.add(scored(21));
  run.add(request(5, 5));
  run.add(scored(3));
  ASSERT_NO_FATAL_FAILURE(run.finish(100));
}

TEST(Scheduler, AHitComputesOnlyTheRest) {
  Simulation::Options options = small();
  options.limits.max_prefill_rows = 100;
  Simulation run(options);
  run.add(request(41, 2));
  ASSERT_NO_FATAL_FAILURE(run.finish(50));
  EXPECT_EQ(run.scheduler().num_cached_tokens(), 0);
  run.add(request(41, 2));
  ASSERT_NO_FATAL_FAILURE(run.finish(50));
  EXPECT_EQ(run.scheduler().num_cached_tokens(), 40);
  SimulatedRequest salted = request(41, 2);
  salted.salt = "tenant";
  run.add(salted);
  ASSERT_NO_FATAL_FAILURE(run.finish(50));
  EXPECT_EQ(run.scheduler().num_cached_tokens(), 40) << "salts never meet";
  // The newest page boundary of a response is a place to start from, too.
  SimulatedRequest next = request(41, 30);
  next.stream = 99;
  run.add(next);
  ASSERT_NO_FATAL_FAILURE(run.finish(100));
  for (int64_t i = 41; i < 71; ++i) next.tokens.push_back(SimulatedDevice::draw(next, i));
  next.prompt = 71;
  next.end = 75;
  run.add(next);
  const int64_t before = run.scheduler().num_cached_tokens();
  ASSERT_NO_FATAL_FAILURE(run.finish(100));
  EXPECT_EQ(run.scheduler().num_cached_tokens() - before, 68);
}

TEST(Scheduler, KnowsWhatNeverFits) {
  Simulation::Options options = small();
  options.num_pages = 6;
  const Simulation run(options);
  EXPECT_TRUE(run.scheduler().fits(24));
  EXPECT_FALSE(run.scheduler().fits(25));
}

TEST(Scheduler, AFailedStepIsComputedAgainRequestByRequest) {
  Simulation::Options options = small();
  options.limits.max_prefill_rows = 100;
  options.rules.takes_snapshots = false;
  cache::PrefixCache cache({.num_pages = 100, .page_tokens = 4, .identity = ""});
  Scheduler scheduler(options.limits, options.rules, cache);
  const std::vector<int32_t> prompt(6, 1);
  for (RequestId id = 1; id <= 3; ++id) scheduler.add(id, {.tokens = prompt, .max_tokens = 9});
  BatchPlan failed, behind, plan;
  scheduler.plan(failed);
  scheduler.plan(behind);
  ASSERT_EQ(failed.spans.size(), 3U);
  scheduler.fail(failed, /*alone=*/true);
  scheduler.fail(behind, /*alone=*/false);
  EXPECT_EQ(cache.num_held(), 0);
  std::vector<RequestId> alone;
  while (alone.size() < 3) {
    scheduler.plan(plan);
    for (const PlanSpan& span : plan.spans) {
      const bool runs_alone = scheduler.runs_alone(span.request);
      if (runs_alone) {
        EXPECT_EQ(plan.spans.size(), 1U);
        alone.push_back(span.request);
      }
      if (runs_alone && span.request == 2) {  // fails again: the caller ends it
        scheduler.remove(2);
        scheduler.fail(plan, /*alone=*/false);
        continue;
      }
      scheduler.land(span, std::vector<int32_t>{4});
      EXPECT_FALSE(scheduler.runs_alone(span.request));
    }
  }
  EXPECT_EQ(alone, (std::vector<RequestId>{1, 2, 3}));
  scheduler.plan(plan);
  for (const PlanSpan& span : plan.spans) scheduler.land(span, std::vector<int32_t>{4});
  for (RequestId id = 1; id <= 3; ++id) scheduler.remove(id);
  EXPECT_EQ(cache.num_held(), 0);
}

TEST(Scheduler, LeavesSkippedRowsOutOfTheDecoder) {
  Simulation::Options options = small();
  options.limits.max_prefill_rows = 100;
  options.rules.takes_snapshots = false;
  cache::PrefixCache cache({.num_pages = 100, .page_tokens = 4, .identity = ""});
  Scheduler scheduler(options.limits, options.rules, cache);
  const std::vector<int32_t> prompt(50, 1);
  scheduler.add(1, {.tokens = prompt, .max_tokens = 60});
  scheduler.add(2, {.tokens = prompt, .max_tokens = 50, .score = true});
  BatchPlan plan;
  scheduler.plan(plan);
  // Layer 1 is the last source: all rows reach it. Layer 2 needs the window of the last row only.
  EXPECT_EQ(plan.rows_at_layer, (std::vector<int64_t>{54, 54, 4 + 4}));
  EXPECT_EQ(plan.num_logit_rows, 1 + 4);
  for (const PlanSpan& span : plan.spans) {
    scheduler.land(span, std::vector<int32_t>(span.samples ? 1 : 0, 3));
  }
  scheduler.remove(1);
  scheduler.remove(2);
}

}  // namespace
}  // namespace deepinfer::scheduler
