#include "scheduler/scheduler.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <vector>

namespace deepinfer::scheduler {
namespace {

constexpr Limits kLimits{.num_layers = 3,
                         .page_tokens = 4,
                         .max_prefill_rows = 10,
                         .max_logit_rows = 6,
                         .max_running = 4};

/// What every plan must satisfy, whatever led to it.
void check_plan(const BatchPlan& plan, const Limits& limits) {
  const auto rows = static_cast<int64_t>(plan.rows.size());
  ASSERT_LE(rows, limits.max_rows());
  ASSERT_LE(plan.num_logit_rows, limits.max_logit_rows);
  ASSERT_LE(plan.num_logit_rows, rows);
  ASSERT_EQ(plan.span_rows.size(), plan.rows.size());
  ASSERT_EQ(plan.rows_at_layer.size(), static_cast<size_t>(limits.num_layers));
  int64_t total = 0;
  std::set<int32_t> slots;
  for (const PlanSpan& span : plan.spans) {
    ASSERT_TRUE(slots.insert(span.slot).second) << "slot twice in a plan";
    ASSERT_GE(span.num_tokens, 1);
    total += span.num_tokens;
    if (span.samples) {
      ASSERT_LT(span.last_row, plan.num_logit_rows);
    }
    const auto last = static_cast<size_t>(span.last_row);
    ASSERT_EQ(plan.span_size[last], span.num_tokens);
    for (int64_t i = 0; i < span.num_tokens; ++i) {
      const int32_t row = plan.span_rows[static_cast<size_t>(plan.span_begin[last] + i)];
      ASSERT_EQ(plan.rows[static_cast<size_t>(row)].slot, span.slot);
      ASSERT_EQ(plan.rows[static_cast<size_t>(row)].offset, i);
    }
  }
  ASSERT_EQ(total, rows);
}

/// Runs plans as an engine would: drawn tokens are a function of the request and its length alone.
class Simulation {
 public:
  Simulation(const Limits& limits, int64_t num_pages)
      : limits_(limits), pages_(num_pages), scheduler_(limits, pages_) {}

  void add(RequestId id, int64_t prompt, int64_t output, bool score = false) {
    std::vector<int32_t> tokens(static_cast<size_t>(prompt), static_cast<int32_t>(id));
    scheduler_.add(id, tokens, score);
    requests_[id] = {.tokens = prompt, .end = prompt + output, .score = score};
  }
  void cancel(RequestId id) {
    scheduler_.remove(id);
    requests_.erase(id);
  }

  void step() {
    const BatchPlan plan = scheduler_.plan();
    ASSERT_NO_FATAL_FAILURE(check_plan(plan, limits_));
    ASSERT_FALSE(plan.empty() && !requests_.empty()) << "no progress";
    for (const int32_t slot : plan.reset_slots) committed_[slot] = 0;
    for (const PlanSpan& span : plan.spans) {
      ASSERT_EQ(span.first_token, committed_[span.slot]) << "a row was skipped or repeated";
      committed_[span.slot] += span.num_tokens;
      Progress& request = requests_.at(span.request);
      bool done = request.score && committed_[span.slot] == request.tokens;
      if (span.samples) {
        ASSERT_EQ(committed_[span.slot], request.tokens);
        ++request.tokens;
        done = request.tokens == request.end;
        if (!done) scheduler_.append(span.request, 7);
      }
      if (done) {
        finished_.push_back(span.request);
        cancel(span.request);
      }
    }
  }

  bool idle() const { return requests_.empty(); }
  const cache::IndexPool& pages() const { return pages_; }
  const Scheduler& scheduler() const { return scheduler_; }
  const std::vector<RequestId>& finished() const { return finished_; }

 private:
  struct Progress {
    int64_t tokens = 0;
    int64_t end = 0;
    bool score = false;
  };

  Limits limits_;
  cache::IndexPool pages_;
  Scheduler scheduler_;
  std::map<RequestId, Progress> requests_;
  std::map<int32_t, int64_t> committed_;
  std::vector<RequestId> finished_;
};

TEST(Scheduler, MixesGenerationWithPromptChunks) {
  Simulation run(kLimits, 100);
  run.add(1, 3, 20);
  run.step();
  run.add(2, 25, 2);
  run.step();  // one row of request 1, ten prompt rows of request 2
  run.step();
  run.step();
  EXPECT_EQ(run.scheduler().num_running(), 2);
  EXPECT_EQ(run.pages().size() - run.pages().num_free(), 2 + 7);
}

TEST(Scheduler, RowsOfOneSlotFollowEachOtherAcrossChunks) {
  for (const int64_t chunk : {1, 2, 9, 10, 11, 100}) {
    Limits limits = kLimits;
    limits.max_prefill_rows = chunk;
    Simulation run(limits, 100);
    run.add(1, 37, 5);
    while (!run.idle()) ASSERT_NO_FATAL_FAILURE(run.step());
  }
}

TEST(Scheduler, PreemptsTheYoungestAndFinishesEveryone) {
  Simulation run(kLimits, 6);  // 24 tokens
  for (RequestId id = 1; id <= 4; ++id) run.add(id, 3, 12);
  for (int i = 0; i < 200 && !run.idle(); ++i) ASSERT_NO_FATAL_FAILURE(run.step());
  EXPECT_TRUE(run.idle());
  EXPECT_GT(run.scheduler().num_preemptions(), 0);
  EXPECT_EQ(run.finished().front(), 1U);
  EXPECT_EQ(run.pages().num_free(), run.pages().size());
}

TEST(BatchPlan, PartOfOneSpanIsAPlanOfItsOwn) {
  cache::IndexPool pages(100);
  Scheduler scheduler(kLimits, pages);
  const std::vector<int32_t> prompt = {1, 2, 3};
  for (RequestId id = 1; id <= 3; ++id) scheduler.add(id, prompt, /*all_logits=*/id == 2);
  const BatchPlan plan = scheduler.plan();
  ASSERT_EQ(plan.spans.size(), 3U);
  int64_t rows = 0;
  int64_t logit_rows = 0;
  for (const PlanSpan& span : plan.spans) {
    const BatchPlan part = plan.only(span);
    ASSERT_NO_FATAL_FAILURE(check_plan(part, kLimits));
    EXPECT_EQ(part.spans[0].request, span.request);
    EXPECT_EQ(part.reset_slots, std::vector<int32_t>{span.slot});
    EXPECT_EQ(part.pages.size(), 1U);
    EXPECT_EQ(part.rows_at_layer.front(), 3);
    rows += static_cast<int64_t>(part.rows.size());
    logit_rows += part.num_logit_rows;
  }
  EXPECT_EQ(rows, static_cast<int64_t>(plan.rows.size()));
  EXPECT_EQ(logit_rows, plan.num_logit_rows);
}

TEST(Scheduler, KnowsWhatNeverFits) {
  cache::IndexPool pages(6);
  const Scheduler scheduler(kLimits, pages);
  EXPECT_TRUE(scheduler.fits(24));
  EXPECT_FALSE(scheduler.fits(25));
}

TEST(Scheduler, LeaksNothingUnderRandomTraffic) {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    const auto below = [&](unsigned n) { return static_cast<int64_t>(random() % n); };
    Simulation run(kLimits, 8 + below(20));
    RequestId next = 1;
    for (int step = 0; step < 400; ++step) {
      if (random() % 3 == 0) {
        const int64_t prompt = 1 + below(20);
        run.add(next++, prompt, 1 + below(12), random() % 4 == 0);
      }
      if (random() % 11 == 0) run.cancel(1 + random() % next);
      ASSERT_NO_FATAL_FAILURE(run.step());
    }
    for (int step = 0; step < 5000 && !run.idle(); ++step) ASSERT_NO_FATAL_FAILURE(run.step());
    EXPECT_TRUE(run.idle()) << "starvation";
    EXPECT_EQ(run.pages().num_free(), run.pages().size());
    EXPECT_EQ(run.scheduler().num_running() + run.scheduler().num_waiting(), 0);
  }
}

}  // namespace
}  // namespace deepinfer::scheduler
