#include "deepinfer/engine.h"

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/engine/requests.h"
#include "tests/support/golden.h"

// Requests from the outside: refusals, cancelling, and who may outlive whom.
namespace deepinfer::testing {
namespace {

EngineOptions nano() {
  return {.model = data_path("nano-d"),
          .threads = 2,
          .prefill_chunk = 64,
          .max_batch = 4,
          .max_model_len = 4096,
          .kv_tokens = 8192};
}

/// A request that does not end by itself within a test.
SamplingParams endless() {
  SamplingParams sampling = greedy(4000);
  sampling.ignore_eos = true;
  return sampling;
}

/// Expects an error of `code` whose message contains `part`.
template <typename Function>
void expect_refused(Function&& call, const std::string& part,
                    ErrorCode code = ErrorCode::kInvalidArgument) {
  try {
    call();
    ADD_FAILURE() << "accepted, expected an error with \"" << part << '"';
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST(EngineCreate, RefusesBadOptions) {
  const auto with = [](auto&& change) {
    EngineOptions options = nano();
    change(options);
    return [options] { Engine::create(options); };
  };
  expect_refused(with([](EngineOptions& o) { o.model.clear(); }), "model");
  expect_refused(with([](EngineOptions& o) { o.engram = "tape"; }), "tape");
  expect_refused(with([](EngineOptions& o) { o.host_cache_bytes = -1; }), "host_cache_bytes");
  expect_refused(with([](EngineOptions& o) { o.cache_dir_bytes = 0; }), "cache_dir_bytes");
  expect_refused(with([](EngineOptions& o) {
                   o.prefix_cache = false;
                   o.cache_dir = "somewhere";
                 }),
                 "cache_dir");
  expect_refused(with([](EngineOptions& o) { o.cache_dir = "/proc/none/such"; }), "/proc/none",
                 ErrorCode::kIo);
  expect_refused(with([](EngineOptions& o) { o.backend = "abacus"; }), "abacus");
  expect_refused(with([](EngineOptions& o) { o.numerics = "vague"; }), "vague");
  expect_refused(with([](EngineOptions& o) { o.model = "synth:flash"; }), "random weights",
                 ErrorCode::kResourceExhausted);
  expect_refused(with([](EngineOptions& o) { o.model = "synth:nano,layers=x"; }), "layers");
  expect_refused(with([](EngineOptions& o) { o.threads = -1; }), "threads is -1");
  expect_refused(with([](EngineOptions& o) { o.prefill_chunk = 0; }), "prefill_chunk is 0");
  expect_refused(with([](EngineOptions& o) { o.max_batch = 0; }), "max_batch is 0");
  expect_refused(with([](EngineOptions& o) { o.max_model_len = -5; }), "max_model_len is -5");
  expect_refused(with([](EngineOptions& o) { o.kv_tokens = -1; }), "kv_tokens is -1");
  expect_refused(with([](EngineOptions& o) { o.kv_tokens = 100; }), "kv_tokens 100");
  expect_refused(with([](EngineOptions& o) { o.model /= "missing"; }), "missing",
                 ErrorCode::kNotFound);
}

TEST(EngineSubmit, RefusesWhatCannotRun) {
  const std::unique_ptr<Engine> engine = Engine::create(nano());
  const auto submit = [&](const std::vector<int32_t>& prompt, auto&& change) {
    SamplingParams sampling = greedy(4);
    change(sampling);
    return
        [&engine, prompt, sampling] { engine->submit({.prompt = prompt, .sampling = sampling}); };
  };
  const auto unchanged = [](SamplingParams&) {};
  expect_refused(submit({}, unchanged), "no tokens");
  expect_refused(submit({1, 512}, unchanged), "token 1 of the prompt is 512");
  expect_refused(submit({-1}, unchanged), "token 0 of the prompt is -1");
  expect_refused(submit(std::vector<int32_t>(4096, 3), unchanged), "4096 tokens");
  expect_refused(submit({1}, [](SamplingParams& s) { s.temperature = -1; }), "temperature");
  expect_refused(submit({1}, [](SamplingParams& s) { s.max_tokens = 0; }), "max_tokens");
  expect_refused(submit({1}, [](SamplingParams& s) { s.stop_token_ids = {512}; }), "512");
  expect_refused(submit({1}, [](SamplingParams& s) { s.logit_bias = {{600, 1.0F}}; }), "600");
  expect_refused(submit({1}, [](SamplingParams& s) { s.stop = {"end"}; }), "tokenizer.json");
  EXPECT_EQ(engine->tokenizer(), nullptr);

  expect_refused([&] { engine->score(std::vector<int32_t>{}, {}); }, "no tokens");
  expect_refused([&] { engine->score(std::vector<int32_t>{0, 700}, {}); }, "700");
  expect_refused([&] { engine->score(std::vector<int32_t>(4097, 1), {}); }, "4097");
  expect_idle(*engine);
}

TEST(EngineFingerprint, NamesCheckpointAndNumerics) {
  EngineOptions options = nano();
  const std::string engine = Engine::create(options)->system_fingerprint();
  EXPECT_EQ(Engine::create(options)->system_fingerprint(), engine);
  options.numerics = "exact";
  EXPECT_NE(Engine::create(options)->system_fingerprint(), engine);
}

TEST(EngineCancel, EndsARequestAtAnyTime) {
  const std::unique_ptr<Engine> engine = Engine::create(nano());
  for (const int deltas : {0, 1, 2, 5}) {
    SCOPED_TRACE(deltas);
    OutputStream stream =
        engine->submit({.prompt = std::vector<int32_t>(100, 7), .sampling = endless()});
    for (int i = 0; i < deltas; ++i) EXPECT_TRUE(stream.next().has_value());
    stream.cancel();
    stream.cancel();
    EXPECT_EQ(collect(stream).finish_reason, FinishReason::kCancelled);
    EXPECT_FALSE(stream.next().has_value());
    EXPECT_FALSE(stream.poll().has_value());
  }
  expect_idle(*engine);
}

TEST(EngineCancel, ComesTooLateForAFinishedRequest) {
  const std::unique_ptr<Engine> engine = Engine::create(nano());
  OutputStream stream = engine->submit({.prompt = {5, 6}, .sampling = greedy(2)});
  settled_stats(*engine);  // its turn comes after the two steps of the request
  stream.cancel();
  const Completion completion = collect(stream);
  EXPECT_NE(completion.finish_reason, FinishReason::kCancelled);
  EXPECT_FALSE(completion.tokens.empty());
}

TEST(EngineCancel, HappensWhenAStreamIsDropped) {
  const std::unique_ptr<Engine> engine = Engine::create(nano());
  for (int i = 0; i < 9; ++i) {  // more than run at once
    OutputStream stream = engine->submit({.prompt = {1, 2, 3}, .sampling = endless()});
    if (i % 3 == 1) stream.next();
  }
  EXPECT_EQ(complete(*engine, {4}, greedy(1)).tokens.size(), 1);
  expect_idle(*engine);
}

TEST(EngineDestroy, CancelsWhatStillRuns) {
  std::unique_ptr<Engine> engine = Engine::create(nano());
  std::vector<OutputStream> streams;
  for (int i = 0; i < 6; ++i)
    streams.push_back(engine->submit({.prompt = {1, 2, i}, .sampling = endless()}));
  streams[0].next();
  engine.reset();
  for (OutputStream& stream : streams) {
    const Completion completion = collect(stream);
    EXPECT_EQ(completion.finish_reason, FinishReason::kCancelled);
    EXPECT_EQ(completion.error, "");
    stream.cancel();
  }
}

TEST(OutputStream, PollDeliversWhatNextDoes) {
  const std::unique_ptr<Engine> engine = Engine::create(nano());
  const Completion want = complete(*engine, {9, 8, 7}, greedy(6));
  OutputStream stream = engine->submit({.prompt = {9, 8, 7}, .sampling = greedy(6)});
  std::vector<int32_t> ids;
  FinishReason reason = FinishReason::kNone;
  while (reason == FinishReason::kNone) {
    if (const std::optional<OutputDelta> delta = stream.poll()) {
      for (const GeneratedToken& token : delta->tokens) ids.push_back(token.id);
      reason = delta->finish_reason;
    } else {
      std::this_thread::yield();
    }
  }
  EXPECT_EQ(ids, ids_of(want));
  EXPECT_EQ(reason, want.finish_reason);
  EXPECT_FALSE(stream.poll().has_value());
}

TEST(Engine, ServesSeveralThreadsAtOnce) {
  const std::unique_ptr<Engine> engine = Engine::create(nano());
  const auto prompt = [](int thread, int i) {
    return std::vector<int32_t>(static_cast<size_t>(1 + 13 * i), 20 * thread + i);
  };
  constexpr int kThreads = 4;
  constexpr int kRequests = 3;
  std::vector<std::vector<int32_t>> alone;
  for (int i = 0; i < kThreads * kRequests; ++i) {
    const std::vector<int32_t> ids = prompt(i / kRequests, i % kRequests);
    alone.push_back(ids_of(complete(*engine, ids, seeded(5, 3))));
  }
  std::vector<std::vector<int32_t>> together(alone.size());
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, thread] {
        for (int i = 0; i < kRequests; ++i) {
          const std::vector<int32_t> ids = prompt(thread, i);
          together[static_cast<size_t>(thread * kRequests + i)] =
              ids_of(complete(*engine, ids, seeded(5, 3)));
          engine->score(ids, {});
          EXPECT_GE(engine->stats().steps, 1);
        }
      });
    }
  }
  EXPECT_EQ(together, alone);
  expect_idle(*engine);
}

TEST(Engine, OneListenerHearsOfEveryDelta) {
  const std::unique_ptr<Engine> engine = Engine::create(nano());
  std::mutex mutex;
  std::condition_variable changed;
  int64_t calls = 0;
  engine->set_output_listener([&] {
    const std::lock_guard lock(mutex);
    ++calls;
    changed.notify_one();
  });
  std::vector<OutputStream> streams;
  for (int i = 0; i < 3; ++i) streams.push_back(engine->submit({{1, 2, 3}, greedy(8)}));
  size_t finished = 0;
  int64_t heard = 0;
  while (finished < streams.size()) {
    for (OutputStream& stream : streams) {
      while (const std::optional<OutputDelta> delta = stream.poll())
        finished += delta->finish_reason != FinishReason::kNone ? 1U : 0U;
    }
    if (finished == streams.size()) break;
    std::unique_lock lock(mutex);
    ASSERT_TRUE(changed.wait_for(lock, std::chrono::minutes(1), [&] { return calls > heard; }));
    heard = calls;
  }
  // A request that ends between steps is news as well.
  OutputStream cancelled = engine->submit({{1}, endless()});
  cancelled.cancel();
  for (bool ended = false; !ended;) {
    while (const std::optional<OutputDelta> delta = cancelled.poll())
      ended = ended || delta->finish_reason == FinishReason::kCancelled;
    std::unique_lock lock(mutex);
    if (ended) break;
    ASSERT_TRUE(changed.wait_for(lock, std::chrono::minutes(1), [&] { return calls > heard; }));
    heard = calls;
  }
  engine->set_output_listener({});
}

}  // namespace
}  // namespace deepinfer::testing
