#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "deepinfer/engine.h"
#include "tests/engine/requests.h"
#include "tests/support/golden.h"

// What sampling parameters do to the output of a request, and why it ends.
namespace deepinfer::testing {
namespace {

constexpr float kForce = 100;  // the largest bias: the token wins

class Generation : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    engine_ = Engine::create(
        {.model = data_path("nano-d"), .max_batch = 2, .max_model_len = 64, .kv_tokens = 128});
  }
  static void TearDownTestSuite() { engine_.reset(); }

  static Completion run(const std::vector<int32_t>& prompt, const SamplingParams& sampling) {
    return complete(*engine_, prompt, sampling);
  }
  static int32_t eos() { return engine_->model_info().eos_token_id; }

  static inline std::unique_ptr<Engine> engine_;
};

TEST_F(Generation, EndsAtMaxTokens) {
  SamplingParams sampling = greedy(5);
  sampling.ignore_eos = true;
  const Completion completion = run({3, 4}, sampling);
  EXPECT_EQ(completion.tokens.size(), 5);
  EXPECT_EQ(completion.finish_reason, FinishReason::kLength);
  EXPECT_EQ(completion.text, "");  // no tokenizer
}

TEST_F(Generation, EndsWhenTheContextIsFull) {
  SamplingParams sampling = greedy(50);
  sampling.ignore_eos = true;
  const Completion completion = run(std::vector<int32_t>(61, 8), sampling);
  EXPECT_EQ(completion.tokens.size(), 3);
  EXPECT_EQ(completion.finish_reason, FinishReason::kLength);
}

TEST_F(Generation, EndsAtTheEndToken) {
  SamplingParams sampling = greedy(5);
  sampling.logit_bias = {{eos(), kForce}};
  const Completion completion = run({3}, sampling);
  EXPECT_EQ(ids_of(completion), std::vector<int32_t>{eos()});
  EXPECT_EQ(completion.finish_reason, FinishReason::kStop);
}

TEST_F(Generation, GoesOnAfterAnEndTokenThatIsIgnored) {
  SamplingParams sampling = greedy(5);
  sampling.logit_bias = {{eos(), kForce}};
  sampling.ignore_eos = true;
  const Completion completion = run({3}, sampling);
  EXPECT_EQ(ids_of(completion), std::vector<int32_t>(5, eos()));
  EXPECT_EQ(completion.finish_reason, FinishReason::kLength);
}

TEST_F(Generation, EndsAtAStopToken) {
  SamplingParams sampling = greedy(5);
  sampling.logit_bias = {{17, kForce}};
  EXPECT_EQ(ids_of(run({3}, sampling)), std::vector<int32_t>(5, 17));
  sampling.stop_token_ids = {16, 17};
  const Completion completion = run({3}, sampling);
  EXPECT_EQ(ids_of(completion), std::vector<int32_t>{17});
  EXPECT_EQ(completion.finish_reason, FinishReason::kStop);
}

TEST_F(Generation, DrawsNoEndBeforeMinTokens) {
  for (const int32_t end : {17, eos()}) {
    SamplingParams sampling = greedy(8);
    sampling.logit_bias = {{end, kForce}};
    sampling.stop_token_ids = {17};
    sampling.min_tokens = 3;
    const std::vector<int32_t> ids = ids_of(run({3}, sampling));
    ASSERT_EQ(ids.size(), 4);
    for (size_t i = 0; i < 3; ++i) EXPECT_NE(ids[i], end);
    EXPECT_EQ(ids[3], end);
  }
}

TEST_F(Generation, BiasBansAToken) {
  SamplingParams sampling = greedy(1);
  const int32_t best = ids_of(run({3, 1, 4}, sampling)).at(0);
  sampling.logit_bias = {{best, -kForce}};
  EXPECT_NE(ids_of(run({3, 1, 4}, sampling)).at(0), best);
}

TEST_F(Generation, ARepetitionPenaltyKeepsTokensFromReturning) {
  const auto distinct = [](const SamplingParams& sampling) {
    const std::vector<int32_t> ids = ids_of(run({3, 4}, sampling));
    EXPECT_EQ(ids.size(), 60);
    return std::set<int32_t>(ids.begin(), ids.end()).size();
  };
  SamplingParams sampling = greedy(60);
  sampling.ignore_eos = true;
  EXPECT_LT(distinct(sampling), 60);
  sampling.repetition_penalty = 100;  // what was seen falls below the many positive logits
  EXPECT_EQ(distinct(sampling), 60);
}

TEST_F(Generation, SeedsRepeatAndDiffer) {
  const auto draw = [](uint64_t seed) { return ids_of(run({5, 6, 7}, seeded(16, seed))); };
  EXPECT_EQ(draw(1), draw(1));
  EXPECT_NE(draw(1), draw(2));
}

TEST_F(Generation, ReportsTheMostLikelyTokens) {
  SamplingParams sampling = greedy(4);
  sampling.ignore_eos = true;
  sampling.logprobs = 5;
  const std::vector<int32_t> prompt{30, 31, 32};
  const Completion completion = run(prompt, sampling);
  std::vector<int32_t> tokens = prompt;
  for (const int32_t id : ids_of(completion)) tokens.push_back(id);
  const std::vector<float> logits = engine_->score(tokens, {.logits = true}).logits;
  const auto vocab = static_cast<size_t>(engine_->model_info().vocab_size);
  for (size_t i = 0; i < completion.tokens.size(); ++i) {
    const GeneratedToken& token = completion.tokens[i];
    const std::span row = std::span(logits).subspan((prompt.size() - 1 + i) * vocab, vocab);
    double sum = 0;
    for (const float logit : row) sum += std::exp(static_cast<double>(logit));
    ASSERT_EQ(token.top.size(), 5);
    EXPECT_TRUE(std::ranges::is_sorted(token.top, std::greater{}, &TokenLogprob::logprob));
    EXPECT_EQ(token.top[0].token, token.id);
    EXPECT_EQ(token.top[0].logprob, token.logprob);
    for (const TokenLogprob& top : token.top) {
      const double want = row[static_cast<size_t>(top.token)] - std::log(sum);
      EXPECT_NEAR(top.logprob, want, 1e-4);
    }
  }
}

TEST_F(Generation, ReportsNoOtherTokensUnasked) {
  SamplingParams sampling = greedy(2);
  EXPECT_TRUE(run({1, 2}, sampling).tokens.at(0).top.empty());
  sampling.logprobs = 0;
  const Completion completion = run({1, 2}, sampling);
  EXPECT_TRUE(completion.tokens.at(0).top.empty());
  EXPECT_LT(completion.tokens.at(0).logprob, 0);
}

TEST_F(Generation, BiasDoesNotShowInLogprobs) {
  SamplingParams sampling = greedy(1);
  sampling.logit_bias = {{17, kForce}};
  const GeneratedToken forced = run({3, 5}, sampling).tokens.at(0);
  ASSERT_EQ(forced.id, 17);
  EXPECT_EQ(forced.logprob, engine_->score(std::vector<int32_t>{3, 5, 17}, {}).logprobs.at(1));
}

/// Text of a greedy continuation and where its tokens begin in it.
struct Continuation {
  std::string text;
  std::vector<size_t> starts;
};

TEST(GenerationText, EndsBeforeAStopStringAcrossTokens) {
  const std::unique_ptr<Engine> engine =
      Engine::create({.model = tiny_model(), .max_batch = 2, .kv_tokens = 512});
  ASSERT_NE(engine->tokenizer(), nullptr);
  const std::vector<int32_t> prompt = engine->tokenizer()->encode("The house was old and");
  Continuation whole;
  OutputStream stream = engine->submit({prompt, greedy(24)});
  while (const std::optional<OutputDelta> delta = stream.next()) {
    whole.starts.push_back(whole.text.size());
    whole.text += delta->text;
  }
  ASSERT_FALSE(whole.text.empty());

  // The last letter of a token and the first of the next.
  int tried = 0;
  for (const size_t start : whole.starts) {
    if (start == 0 || start >= whole.text.size() || tried == 3) continue;
    const std::string stop = whole.text.substr(start - 1, 2);
    SCOPED_TRACE(stop);
    SamplingParams sampling = greedy(24);
    sampling.stop = {"never in the text", stop};
    const Completion completion = complete(*engine, prompt, sampling);
    EXPECT_EQ(completion.text, whole.text.substr(0, whole.text.find(stop)));
    EXPECT_EQ(completion.finish_reason, FinishReason::kStop);
    ++tried;
  }
  EXPECT_EQ(tried, 3);

  SamplingParams sampling = greedy(24);
  sampling.stop = {whole.text + "?"};  // held back to the end, then given out
  EXPECT_EQ(complete(*engine, prompt, sampling).text, whole.text);
}

TEST(GenerationText, IsWhatTheTokenizerMakesOfTheTokens) {
  const std::unique_ptr<Engine> engine =
      Engine::create({.model = tiny_model(), .max_batch = 2, .kv_tokens = 512});
  SamplingParams sampling = seeded(20, 11);
  sampling.ignore_eos = true;
  const Completion completion =
      complete(*engine, engine->tokenizer()->encode("Once upon"), sampling);
  EXPECT_EQ(completion.tokens.size(), 20);
  EXPECT_EQ(completion.text, replace_invalid_utf8(engine->tokenizer()->decode(ids_of(completion))));
}

}  // namespace
}  // namespace deepinfer::testing
