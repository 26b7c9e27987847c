#include "engine/step_loop.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "base/error.h"
#include "tests/engine/fake_device.h"
#include "tests/support/tensors.h"

// The step loop on a device without a model.
namespace deepinfer::engine {
namespace {

constexpr int64_t kPageTokens = 16;
constexpr int32_t kEndToken = 1000;

struct Harness {
  explicit Harness(int64_t max_running = 4, int64_t num_pages = 1000)
      : cache({.num_pages = num_pages,
               .page_tokens = kPageTokens,
               .num_snapshot_units = 16,
               .identity = "fake"}),
        loop(device, cache, {.max_prefill_rows = 512, .max_running = max_running, .ring_slack = 16},
             {.num_layers = 8,
              .last_source = 4,
              .window = 128,
              .page_tokens = kPageTokens,
              .snapshot_interval = 2048}) {}

  /// Its stream stays with the caller.
  std::shared_ptr<OutputStream::State> start(scheduler::RequestId id, int64_t prompt,
                                             int64_t max_new) {
    auto stream = std::make_shared<OutputStream::State>();
    Request request;
    request.prompt.assign(static_cast<size_t>(prompt), static_cast<int32_t>(id));
    loop.start(id, std::make_unique<RequestState>(std::move(request), stream, 1, max_new, kEndToken,
                                                  nullptr));
    return stream;
  }
  void advance() {
    loop.launch();
    if (!loop.land()) loop.wait_oldest();
  }
  void finish() {
    for (int i = 0; i < 100000 && !loop.idle(); ++i) advance();
    EXPECT_TRUE(loop.idle());
    EXPECT_EQ(cache.num_held(), 0);
    EXPECT_EQ(cache.snapshots().num_held(), 0);
  }

  FakeDevice device;
  cache::PrefixCache cache;
  StepLoop loop;
};

std::vector<int32_t> drain(OutputStream::State& stream, FinishReason& reason) {
  std::vector<int32_t> ids;
  while (std::optional<OutputDelta> delta = stream.pop(/*wait=*/false)) {
    for (const GeneratedToken& token : delta->tokens) {
      EXPECT_EQ(token.logprob, -static_cast<float>(ids.size()));
      ids.push_back(token.id);
    }
    reason = delta->finish_reason;
  }
  return ids;
}

std::vector<int32_t> expected(const Harness& run, scheduler::RequestId id, int64_t count) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < count; ++i) ids.push_back(run.device.draw(id, i));
  return ids;
}

void expect_output(const Harness& run, OutputStream::State& stream, scheduler::RequestId id,
                   int64_t count, FinishReason want) {
  SCOPED_TRACE(::testing::Message() << "request " << id);
  FinishReason reason = FinishReason::kNone;
  EXPECT_EQ(drain(stream, reason), expected(run, id, count));
  EXPECT_EQ(reason, want);
}

// Issue: with 256 streaming requests and steps of 5 ms, the device is idle less than 2 %.
TEST(StepLoop, TheDeviceNeverWaitsForTheHost) {
  Harness run(/*max_running=*/256, /*num_pages=*/8000);
  std::vector<std::shared_ptr<OutputStream::State>> streams;
  for (scheduler::RequestId id = 1; id <= 256; ++id) streams.push_back(run.start(id, 40, 200));
  run.finish();
  EXPECT_GE(run.device.num_steps(), 200);
  EXPECT_LT(run.device.idle_share(), 0.02);
  for (scheduler::RequestId id = 1; id <= 256; ++id) {
    expect_output(run, *streams[id - 1], id, 200, FinishReason::kLength);
  }
}

TEST(StepLoop, AnEndFoundOneStepLateLeavesNothing) {
  Harness run;
  run.device.draw = [](scheduler::RequestId id, int64_t index) {
    return index == static_cast<int64_t>(id) * 3 ? kEndToken : static_cast<int32_t>(index);
  };
  std::vector<std::shared_ptr<OutputStream::State>> streams;
  for (scheduler::RequestId id = 1; id <= 9; ++id) streams.push_back(run.start(id, 20, 100));
  run.finish();
  for (scheduler::RequestId id = 1; id <= 9; ++id) {
    expect_output(run, *streams[id - 1], id, static_cast<int64_t>(id) * 3 + 1, FinishReason::kStop);
  }
}

TEST(StepLoop, ComputesNoRowBeyondTheTokenLimit) {
  Harness run;
  const auto stream = run.start(1, 10, 5);
  run.finish();
  expect_output(run, *stream, 1, 5, FinishReason::kLength);
  EXPECT_EQ(run.loop.stats().rows, 10 + 4);
}

TEST(StepLoop, CancelsWhileStepsAreUnderWay) {
  for (int after = 0; after < 12; ++after) {
    Harness run;
    const auto cancelled = run.start(1, 600, 50);  // two chunks
    const auto other = run.start(2, 20, 20);
    for (int i = 0; i < after; ++i) run.advance();
    run.loop.cancel(1);
    run.loop.cancel(1);
    run.finish();
    FinishReason reason = FinishReason::kNone;
    drain(*cancelled, reason);
    EXPECT_EQ(reason, FinishReason::kCancelled);
    expect_output(run, *other, 2, 20, FinishReason::kLength);
  }
}

// F02: a result that arrives after its request was preempted is neither lost nor counted twice.
TEST(StepLoop, PreemptionWithResultsInFlightLosesNoToken) {
  Harness run(/*max_running=*/6, /*num_pages=*/14);
  std::vector<std::shared_ptr<OutputStream::State>> streams;
  for (scheduler::RequestId id = 1; id <= 6; ++id) streams.push_back(run.start(id, 20, 60));
  run.finish();
  EXPECT_GT(run.loop.stats().preemptions, 0);
  for (scheduler::RequestId id = 1; id <= 6; ++id) {
    expect_output(run, *streams[id - 1], id, 60, FinishReason::kLength);
  }
}

TEST(StepLoop, AFaultThatPassesIsNotNoticed) {
  ::deepinfer::testing::Random random(5);
  Harness run(/*max_running=*/4, /*num_pages=*/40);
  scheduler::RequestId last = 0;
  // One step in ten fails, but never the same request's twice in a row.
  run.device.fails = [&](const Step& step) {
    const bool again = step.plan.spans.size() == 1 && step.plan.spans[0].request == last;
    if (again || random.below(10) != 0) return false;
    last = step.plan.spans.empty() ? 0 : step.plan.spans[0].request;
    return true;
  };
  std::vector<std::shared_ptr<OutputStream::State>> streams;
  for (scheduler::RequestId id = 1; id <= 12; ++id) streams.push_back(run.start(id, 30, 40));
  // A step of one request may fail although it runs alone: that ends it. Others never notice.
  run.finish();
  EXPECT_GT(run.loop.stats().failed_steps, 0);
  int64_t complete = 0;
  for (scheduler::RequestId id = 1; id <= 12; ++id) {
    FinishReason reason = FinishReason::kNone;
    const std::vector<int32_t> ids = drain(*streams[id - 1], reason);
    const auto count = static_cast<int64_t>(ids.size());
    EXPECT_EQ(ids, expected(run, id, count));
    EXPECT_TRUE(reason == FinishReason::kLength ? count == 40 : reason == FinishReason::kError);
    complete += reason == FinishReason::kLength ? 1 : 0;
  }
  EXPECT_GE(complete, 9);
}

TEST(StepLoop, OnlyTheRequestWhoseStepsFailEnds) {
  Harness run;
  run.device.fails = [](const Step& step) {
    for (const scheduler::PlanSpan& span : step.plan.spans) {
      if (span.request == 3 && span.first_token + span.num_tokens > 24) return true;
    }
    return false;
  };
  std::vector<std::shared_ptr<OutputStream::State>> streams;
  for (scheduler::RequestId id = 1; id <= 6; ++id) streams.push_back(run.start(id, 20, 30));
  run.finish();
  for (scheduler::RequestId id = 1; id <= 6; ++id) {
    const bool guilty = id == 3;
    expect_output(run, *streams[id - 1], id, guilty ? 5 : 30,
                  guilty ? FinishReason::kError : FinishReason::kLength);
  }
}

TEST(StepLoop, EndingEverythingWaitsForWhatIsLaunched) {
  Harness run;
  const auto stream = run.start(1, 20, 30);
  run.loop.launch();
  run.loop.end_all();
  FinishReason reason = FinishReason::kNone;
  drain(*stream, reason);
  EXPECT_EQ(reason, FinishReason::kCancelled);
}

}  // namespace
}  // namespace deepinfer::engine
