// The sample operation of every backend: golden tokens, each step of its order against the
// formula, log-probabilities, and rows that do not depend on each other.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/ops/suite.h"
#include "tests/support/compare.h"

namespace deepinfer::ops {
namespace {

using testing::bitwise_equal;
using testing::Golden;
using testing::Operands;
using testing::Random;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// A row of the operation with everything that it may look at. Empty: left out.
struct Input {
  std::vector<float> logits;
  SampleRow row = {};
  int64_t position = 0;
  std::vector<int32_t> counts = {};
  std::vector<float> bias = {};
  std::vector<int32_t> mask = {};
};

struct Output {
  std::vector<int64_t> tokens;  // [n]
  std::vector<float> logprobs;  // [n]
  std::vector<int64_t> top;     // [n, T]
  std::vector<float> top_logprobs;
};

/// Rows of one size, joined. Slots are in reverse, so that row and slot differ.
Output run(Backend& backend, std::span<const Input> inputs, int64_t num_top = 0) {
  const auto n = static_cast<int64_t>(inputs.size());
  const auto vocab = static_cast<int64_t>(inputs[0].logits.size());
  std::vector<float> logits;
  std::vector<float> bias;
  std::vector<int32_t> mask;
  std::vector<int32_t> counts;
  std::vector<int32_t> slots;
  std::vector<int64_t> positions;
  std::vector<SampleRow> rows;
  for (int64_t i = 0; i < n; ++i) {
    const Input& input = inputs[static_cast<size_t>(i)];
    const Input& of_slot = inputs[static_cast<size_t>(n - 1 - i)];
    logits.insert(logits.end(), input.logits.begin(), input.logits.end());
    bias.insert(bias.end(), input.bias.begin(), input.bias.end());
    mask.insert(mask.end(), input.mask.begin(), input.mask.end());
    counts.insert(counts.end(), of_slot.counts.begin(), of_slot.counts.end());
    slots.push_back(static_cast<int32_t>(n - 1 - i));
    positions.push_back(input.position);
    rows.push_back(input.row);
  }
  Operands o(backend);
  const auto optional_i32 = [&](const std::vector<int32_t>& values, int64_t columns) {
    return values.empty() ? TensorView() : o.put_i32(values, {n, columns});
  };
  const bool top = num_top > 0;
  const SampleParams p{.logits = o.put_f32(logits, {n, vocab}),
                       .rows = rows,
                       .slot = o.put_i32(slots, {n}),
                       .position = o.put(testing::to_tensor(positions, {n})),
                       .counts = optional_i32(counts, vocab),
                       .bias = bias.empty() ? TensorView() : o.put_f32(bias, {n, vocab}),
                       .mask = optional_i32(mask, (vocab + 31) / 32),
                       .token = o.zeros(DType::kI32, {n}),
                       .logprob = o.zeros(DType::kF32, {n}),
                       .top_tokens = top ? o.zeros(DType::kI32, {n, num_top}) : TensorView(),
                       .top_logprobs = top ? o.zeros(DType::kF32, {n, num_top}) : TensorView()};
  backend.sample(p);
  EXPECT_TRUE(bitwise_equal(o.floats(p.logits), logits)) << "the logits were modified";
  Output output{o.ints(p.token), o.floats(p.logprob), {}, {}};
  if (top) {
    output.top = o.ints(p.top_tokens);
    output.top_logprobs = o.floats(p.top_logprobs);
  }
  return output;
}

class Sample : public BackendTest {
 protected:
  int64_t token_of(const Input& input) { return run(*backend_, std::span(&input, 1)).tokens[0]; }
};

TEST_P(Sample, DrawsTheGoldenTokens) {
  const Golden golden(testing::data_path("sampling.safetensors"));
  const std::vector<float> logits = golden.floats("sampling.logits");
  const std::vector<float> temperature = golden.floats("sampling.temperature");
  const std::vector<int64_t> top_k = golden.ints("sampling.top_k");
  const std::vector<float> top_p = golden.floats("sampling.top_p");
  const std::vector<float> min_p = golden.floats("sampling.min_p");
  const std::vector<int64_t> seed = golden.ints("sampling.seed");
  const std::vector<int64_t> position = golden.ints("sampling.position");
  const int64_t rows = golden.shape("sampling.logits")[0];
  const int64_t vocab = golden.shape("sampling.logits")[1];
  std::vector<Input> inputs;
  for (size_t variant = 0; variant < temperature.size(); ++variant) {
    for (int64_t r = 0; r < rows; ++r) {
      const auto begin = logits.begin() + r * vocab;
      for (size_t s = 0; s < seed.size(); ++s) {
        // The golden position is the drawn token's; the row's is one less.
        inputs.push_back({.logits = {begin, begin + vocab},
                          .row = {.seed = static_cast<uint64_t>(seed[s]),
                                  .temperature = temperature[variant],
                                  .top_p = top_p[variant],
                                  .min_p = min_p[variant],
                                  .top_k = static_cast<int32_t>(top_k[variant])},
                          .position = position[s] - 1});
      }
    }
  }
  EXPECT_EQ(run(*backend_, inputs).tokens, golden.ints("sampling.token"));
}

TEST_P(Sample, GreedyTakesTheLowestIdOfTheLargest) {
  EXPECT_EQ(token_of({.logits = {1, 5, 2, 5, 4}}), 1);
  EXPECT_EQ(token_of({.logits = {-0.0F, 0.0F}}), 0);
  EXPECT_EQ(token_of({.logits = {-3}}), 0);
}

TEST_P(Sample, PenalizesTokensSeen) {
  constexpr auto kInPrompt = std::numeric_limits<int32_t>::min();  // bit 31
  const std::vector<int32_t> counts = {0, kInPrompt, 2, kInPrompt | 3, 0};
  const auto token = [&](std::vector<float> logits, const SampleRow& row) {
    return token_of({.logits = std::move(logits), .row = row, .counts = counts});
  };
  // Repetition: of prompt and output; positive logits shrink, negative ones grow.
  EXPECT_EQ(token({5, 9, 9, 9, 4}, {.repetition_penalty = 2}), 0);
  EXPECT_EQ(token({4, 9, 9, 9, 4}, {.repetition_penalty = 2}), 1);
  EXPECT_EQ(token({-3, -2, -2, -2, -3.5F}, {.repetition_penalty = 2}), 0);
  // Frequency: times the count in the output.
  EXPECT_EQ(token({0, 0.5F, 2, 4, 0}, {.frequency_penalty = 1}), 3);
  EXPECT_EQ(token({0, 0.5F, 3, 3.5F, 0}, {.frequency_penalty = 1}), 2);
  EXPECT_EQ(token({0, 0.25F, 2, 3, 0}, {.frequency_penalty = 1}), 1);
  // Presence: once, and not for the prompt.
  EXPECT_EQ(token({0, 0.5F, 1, 1.25F, 0}, {.presence_penalty = 1}), 1);
  EXPECT_EQ(token({0, 0.5F, 1, 1.75F, 0}, {.presence_penalty = 1}), 3);
  // Repetition comes before the others: 8 / 2 - 3·1 - 0.5.
  const SampleRow all = {.repetition_penalty = 2, .frequency_penalty = 1, .presence_penalty = 0.5F};
  EXPECT_EQ(token({0.25F, -9, -9, 8, 0}, all), 3);
  EXPECT_EQ(token({0.75F, -9, -9, 8, 0}, all), 0);
}

TEST_P(Sample, BiasMaskAndBanDecideWhatCanBeTaken) {
  const std::vector<float> logits = {1, 2, 3, 4, 5};
  EXPECT_EQ(token_of({.logits = logits, .bias = {4.5F, 0, 0, 0, 0}}), 0);
  EXPECT_EQ(token_of({.logits = logits, .bias = {0, 0, 0, 0, -kInf}}), 3);
  EXPECT_EQ(token_of({.logits = logits, .mask = {0b00110}}), 2);
  EXPECT_EQ(token_of({.logits = logits, .row = {.banned_token = 4}}), 3);
  EXPECT_EQ(token_of({.logits = logits, .row = {.banned_token = 2}, .mask = {0b00111}}), 1);
  // A bias cannot undo a mask, and the bias comes after the penalties.
  EXPECT_EQ(token_of({.logits = logits, .bias = {0, 0, 0, 0, 100}, .mask = {0b01111}}), 3);
  EXPECT_EQ(token_of({.logits = {4, 4.5F},
                      .row = {.repetition_penalty = 2},
                      .counts = {1, 0},
                      .bias = {2.75F, 0}}),
            0);
  // The same at temperature 1, for many draws.
  for (int64_t position = 0; position < 50; ++position) {
    const Input input{.logits = logits,
                      .row = {.seed = 3, .temperature = 1, .banned_token = 1},
                      .position = position,
                      .mask = {0b00110}};
    EXPECT_EQ(token_of(input), 2);
  }
}

TEST_P(Sample, LogprobsAreThoseOfTheUnmodifiedLogits) {
  constexpr int64_t kVocab = 777;
  Random random(5);
  std::vector<Input> inputs;
  for (int32_t i = 0; i < 4; ++i) {
    Input input{.logits = random.normals(kVocab, 3),
                .row = {.seed = 1, .temperature = 1, .presence_penalty = 2},
                .counts = std::vector<int32_t>(kVocab, 1),
                .bias = random.normals(kVocab)};
    // Forced tokens are what scoring asks for: a token that was drawn must give the same bits.
    if (i == 3) {
      input = inputs[2];
      input.row = {.forced_token = static_cast<int32_t>(run(*backend_, inputs).tokens[2])};
    }
    inputs.push_back(input);
  }
  const Output output = run(*backend_, inputs, 3);
  for (size_t i = 0; i < inputs.size(); ++i) {
    long double sum = 0;
    for (const float logit : inputs[i].logits) sum += std::exp(static_cast<long double>(logit));
    const auto token = static_cast<size_t>(output.tokens[i]);
    const auto want = static_cast<double>(inputs[i].logits[token] - std::log(sum));
    EXPECT_NEAR(output.logprobs[i], want, 1e-6 * std::abs(want));
  }
  EXPECT_EQ(output.tokens[3], output.tokens[2]);
  EXPECT_TRUE(bitwise_equal(std::span(&output.logprobs[3], 1), std::span(&output.logprobs[2], 1)));
}

TEST_P(Sample, ReportsTheMostLikelyTokens) {
  const Input input{.logits = {2, kNan, 3, 3, -kInf, 2}, .row = {.forced_token = 2}};
  const Output output = run(*backend_, std::span(&input, 1), 8);
  EXPECT_EQ(output.top, (std::vector<int64_t>{2, 3, 0, 5, 1, 4, -1, -1}));
  EXPECT_EQ(output.top_logprobs[0], output.logprobs[0]);
  EXPECT_EQ(output.top_logprobs[1], output.logprobs[0]);
  for (size_t t = 4; t < 8; ++t) EXPECT_EQ(output.top_logprobs[t], -kInf);
  double sum = 0;
  for (const float logprob : output.top_logprobs) sum += std::exp(static_cast<double>(logprob));
  EXPECT_NEAR(sum, 1, 1e-6);
}

TEST_P(Sample, SurvivesLogitsThatAreNotFinite) {
  for (const float temperature : {0.0F, 1.0F}) {
    for (const float top_p : {0.5F, 1.0F}) {
      const SampleRow row = {.temperature = temperature, .top_p = top_p, .min_p = 1 - top_p};
      EXPECT_EQ(token_of({.logits = {kNan, -kInf, 1, kNan}, .row = row}), 2);
      EXPECT_EQ(token_of({.logits = {kNan, kNan, -kInf}, .row = row}), 0);
      EXPECT_EQ(token_of({.logits = {kNan, kNan, -kInf}, .row = row, .mask = {0b100}}), 2);
      EXPECT_EQ(token_of({.logits = {1, 2, 3}, .row = row, .mask = {0}}), 0);
      EXPECT_EQ(token_of({.logits = {1, kInf, 3}, .row = row}), 1);
      EXPECT_EQ(
          token_of({.logits = {1, kInf, 3}, .row = row, .bias = {0, -kInf, 0}, .mask = {0b11}}), 0);
    }
  }
  const std::vector<Input> inputs = {{.logits = {kNan, kNan}}, {.logits = {kInf, 0}}};
  for (const float logprob : run(*backend_, inputs).logprobs) EXPECT_LE(logprob, 0);
}

TEST_P(Sample, DrawsEveryTokenWithItsProbability) {
  constexpr int64_t kDraws = 4000;
  const std::vector<float> probabilities = {0.1F, 0.4F, 0.05F, 0.25F, 0.2F};
  std::vector<float> logits;
  for (const float p : probabilities) logits.push_back(2 * std::log(p));
  std::vector<Input> inputs;
  for (int64_t i = 0; i < kDraws; ++i) {
    inputs.push_back({.logits = logits, .row = {.seed = 11, .temperature = 2}, .position = i});
  }
  const std::vector<int64_t> tokens = run(*backend_, inputs).tokens;
  for (size_t v = 0; v < probabilities.size(); ++v) {
    const auto count = static_cast<double>(std::ranges::count(tokens, static_cast<int64_t>(v)));
    EXPECT_NEAR(count / kDraws, probabilities[v], 0.03) << "token " << v;
  }
}

/// A row of everything at once.
Input random_input(Random& random, int64_t vocab) {
  Input input{.logits = random.normals(vocab, 3),
              .row = {.seed = static_cast<uint64_t>(random.below(1 << 30)),
                      .temperature = random.uniform() < 0.2F ? 0 : 2 * random.uniform(),
                      .top_p = random.uniform() < 0.5F ? 1 : 0.05F + 0.9F * random.uniform(),
                      .min_p = random.uniform() < 0.5F ? 0 : random.uniform() / 4,
                      .top_k = static_cast<int32_t>(random.below(vocab)),
                      .repetition_penalty = 1 + random.uniform(),
                      .frequency_penalty = random.normal(0.5F),
                      .presence_penalty = random.normal(0.5F),
                      .banned_token = static_cast<int32_t>(random.below(vocab + 1)) - 1},
              .position = random.below(int64_t{1} << 40),
              .bias = random.normals(vocab)};
  for (int64_t v = 0; v < vocab; ++v) {
    input.counts.push_back(static_cast<int32_t>(std::max<int64_t>(random.below(6) - 3, 0)));
  }
  for (int64_t w = 0; w < (vocab + 31) / 32; ++w) {
    input.mask.push_back(static_cast<int32_t>(random.below(int64_t{1} << 32)));
  }
  return input;
}

TEST_P(Sample, RowsDependOnNothingButThemselves) {
  constexpr uint64_t kSeed = 77;
  constexpr int64_t kTop = 3;
  SCOPED_TRACE(fmt::format("seed {}", kSeed));
  Random random(kSeed);
  ThreadPool one_thread(1);
  ThreadPool three_threads(3);
  const auto alone = GetParam().make(one_thread);
  const auto threaded = GetParam().make(three_threads);
  for (const int64_t vocab : {1, 2, 3, 4, 5, 31, 32, 33, 129, 1000}) {
    std::vector<Input> inputs;
    for (int i = 0; i < 17; ++i) inputs.push_back(random_input(random, vocab));
    const Output together = run(*threaded, inputs, kTop);
    for (size_t i = 0; i < inputs.size(); ++i) {
      SCOPED_TRACE(fmt::format("vocabulary of {}, row {}", vocab, i));
      const Output single = run(*alone, std::span(&inputs[i], 1), kTop);
      EXPECT_EQ(single.tokens[0], together.tokens[i]);
      EXPECT_TRUE(bitwise_equal(single.logprobs, std::span(together.logprobs).subspan(i, 1)));
      EXPECT_TRUE(std::ranges::equal(single.top, std::span(together.top).subspan(i * kTop, kTop)));
      EXPECT_TRUE(bitwise_equal(single.top_logprobs,
                                std::span(together.top_logprobs).subspan(i * kTop, kTop)));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, Sample, ::testing::ValuesIn(suite().backends), case_name);

}  // namespace
}  // namespace deepinfer::ops
