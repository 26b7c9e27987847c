#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <memory>
#include <string>
#include <vector>

#include "deepinfer/engine.h"
#include "tests/engine/requests.h"
#include "tests/support/golden.h"

// The promise of include/deepinfer/engine.h: what a request gets depends on nothing but itself.
namespace deepinfer::testing {
namespace {

constexpr uint64_t kSeed = 20260729;

/// One engine for a whole comparison: room for every request at once.
EngineOptions roomy(const std::filesystem::path& model) {
  return {.model = model, .threads = 1, .max_batch = 8, .max_model_len = 192, .kv_tokens = 2048};
}

/// Eight requests of every kind. `stops`: also with stop strings, which need a tokenizer.
std::vector<Request> requests(int64_t vocab, int64_t max_tokens, bool stops) {
  Random random(kSeed);
  std::vector<Request> all;
  for (const int64_t size : {1, 2, 3, 21, 127, 128, 129, 60}) {
    const auto i = static_cast<uint64_t>(all.size());
    Request request{.prompt = random_prompt(random, size, vocab),
                    .sampling = i % 2 == 0 ? greedy(max_tokens) : seeded(max_tokens, kSeed + i)};
    SamplingParams& sampling = request.sampling;
    sampling.ignore_eos = i < 6;
    if (i == 1) sampling.top_p = 0.9F;
    if (i == 3) sampling.top_k = 20;
    if (i == 4) sampling.logit_bias = {{5, 3.0F}, {9, -100.0F}};
    if (i >= 5) {
      sampling.repetition_penalty = 1.2F;
      sampling.frequency_penalty = 0.5F;
      sampling.presence_penalty = -0.3F;
      sampling.logprobs = 3;
    }
    if (stops && i >= 6) sampling.stop = {"e", "zzz"};
    all.push_back(std::move(request));
  }
  return all;
}

std::vector<Completion> run_alone(Engine& engine, const std::vector<Request>& all) {
  std::vector<Completion> completions;
  for (const Request& request : all) {
    completions.push_back(complete(engine, request.prompt, request.sampling));
  }
  return completions;
}

std::vector<Completion> run_together(Engine& engine, const std::vector<Request>& all) {
  std::vector<OutputStream> streams;
  for (const Request& request : all) streams.push_back(engine.submit(request));
  std::vector<Completion> completions;
  for (OutputStream& stream : streams) completions.push_back(collect(stream));
  return completions;
}

/// All requests at once on an engine with `options` give what each gives alone.
void expect_invariant(const EngineOptions& options, const std::vector<Request>& all,
                      const std::vector<Completion>& alone) {
  SCOPED_TRACE(fmt::format("seed {}: chunk {}, threads {}, batch {}", kSeed, options.prefill_chunk,
                           options.threads, options.max_batch));
  const std::unique_ptr<Engine> engine = Engine::create(options);
  const std::vector<Completion> together = run_together(*engine, all);
  for (size_t i = 0; i < all.size(); ++i) {
    SCOPED_TRACE(i);
    expect_same_bits(together[i], alone[i]);
  }
  expect_idle(*engine);
}

class NanoInvariance : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    const std::unique_ptr<Engine> engine = Engine::create(roomy(data_path("nano-d")));
    all_ = requests(engine->model_info().vocab_size, 12, false);
    alone_ = run_alone(*engine, all_);
    // Otherwise the comparisons would not show much.
    for (const Completion& completion : alone_) EXPECT_FALSE(completion.tokens.empty());
  }

  EngineOptions options_ = roomy(data_path("nano-d"));
  static inline std::vector<Request> all_;
  static inline std::vector<Completion> alone_;
};

TEST_F(NanoInvariance, BatchAndChunkChangeNothing) {
  for (const int64_t chunk : {1, 7, 64, 128, 4096}) {
    options_.prefill_chunk = chunk;
    expect_invariant(options_, all_, alone_);
  }
}

TEST_F(NanoInvariance, ThreadsChangeNothing) {
  for (const int threads : {2, 5}) {
    options_.threads = threads;
    expect_invariant(options_, all_, alone_);
  }
}

TEST_F(NanoInvariance, WaitingForASlotChangesNothing) {
  options_.max_batch = 3;
  expect_invariant(options_, all_, alone_);
}

TEST_F(NanoInvariance, PreemptionChangesNothing) {
  // Five pages: the three longest requests alone need eight.
  options_.kv_tokens = 320;
  const std::unique_ptr<Engine> engine = Engine::create(options_);
  // Short prompts that outgrow a page each: admitted together, they cannot all stay.
  std::vector<Request> growing;
  Random random(kSeed);
  for (uint64_t i = 0; i < 6; ++i) {
    SamplingParams sampling = i % 2 == 0 ? greedy(24) : seeded(24, i);
    sampling.ignore_eos = true;
    sampling.presence_penalty = 0.5F;
    growing.push_back(
        {.prompt = random_prompt(random, 50 + static_cast<int64_t>(i), 512), .sampling = sampling});
  }
  std::vector<Request> every = all_;
  every.insert(every.end(), growing.begin(), growing.end());
  const std::vector<Completion> together = run_together(*engine, every);
  EXPECT_GT(engine->stats().preemptions, 0);
  expect_idle(*engine);

  const std::unique_ptr<Engine> reference = Engine::create(roomy(data_path("nano-d")));
  const std::vector<Completion> grown = run_alone(*reference, growing);
  EXPECT_EQ(reference->stats().preemptions, 0);
  for (size_t i = 0; i < every.size(); ++i) {
    SCOPED_TRACE(i);
    expect_same_bits(together[i], i < all_.size() ? alone_[i] : grown[i - all_.size()]);
  }
}

TEST_F(NanoInvariance, CancelledNeighboursChangeNothing) {
  options_.prefill_chunk = 32;
  const std::unique_ptr<Engine> engine = Engine::create(options_);
  Random random(kSeed);
  std::vector<OutputStream> streams;
  std::vector<OutputStream> neighbours;
  for (const Request& request : all_) {
    SamplingParams endless = greedy(100);
    endless.ignore_eos = true;
    neighbours.push_back(
        engine->submit({.prompt = random_prompt(random, 40, 512), .sampling = endless}));
    streams.push_back(engine->submit(request));
  }
  neighbours[0].cancel();  // most likely before it starts
  neighbours[1].next();    // while it generates
  neighbours[1].cancel();
  while (neighbours.size() > 5) neighbours.pop_back();  // dropped streams cancel, too
  for (size_t i = 0; i < all_.size(); ++i) {
    SCOPED_TRACE(i);
    expect_same_bits(collect(streams[i]), alone_[i]);
  }
  neighbours.clear();
  expect_idle(*engine);
}

/// Log-probabilities of the generated tokens as scoring sees them.
void expect_scores(Engine& engine, const std::vector<Request>& all,
                   const std::vector<Completion>& alone) {
  for (size_t i = 0; i < all.size(); ++i) {
    SCOPED_TRACE(i);
    std::vector<int32_t> tokens = all[i].prompt;
    for (const int32_t id : ids_of(alone[i])) tokens.push_back(id);
    const std::vector<float> logprobs = engine.score(tokens, {}).logprobs;
    ASSERT_EQ(logprobs.size(), tokens.size() - 1);
    for (size_t t = 0; t < alone[i].tokens.size(); ++t) {
      EXPECT_EQ(std::bit_cast<uint32_t>(logprobs[all[i].prompt.size() - 1 + t]),
                std::bit_cast<uint32_t>(alone[i].tokens[t].logprob))
          << "token " << t;
    }
  }
}

TEST_F(NanoInvariance, ScoringReportsTheSameBits) {
  for (const int64_t chunk : {5, 512}) {
    options_.prefill_chunk = chunk;
    const std::unique_ptr<Engine> engine = Engine::create(options_);
    expect_scores(*engine, all_, alone_);
    expect_idle(*engine);
  }
}

// The trained model has what nano-d lacks: Engram, ratio 2 and a tokenizer.
TEST(TinyInvariance, BatchChunkAndScoringChangeNothing) {
  EngineOptions options = roomy(tiny_model());
  const std::unique_ptr<Engine> engine = Engine::create(options);
  std::vector<Request> all = requests(engine->model_info().vocab_size, 8, true);
  all.erase(all.begin() + 4, all.begin() + 7);  // the long ones: this model takes its time
  const std::vector<Completion> alone = run_alone(*engine, all);
  expect_scores(*engine, all, alone);
  options.prefill_chunk = 7;
  options.threads = 2;
  expect_invariant(options, all, alone);
}

}  // namespace
}  // namespace deepinfer::testing
