// Noise and filters of the sample operation alone: what its result shows only indirectly.
#include "ops/sample.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "ops/noise.h"
#include "ops/sample_filter.h"
#include "tests/support/golden.h"
#include "tests/support/tensors.h"

namespace deepinfer::ops {
namespace {

using testing::Golden;
using testing::Random;

const Golden& golden() {
  static const Golden golden(testing::data_path("sampling.safetensors"));
  return golden;
}

TEST(Philox, MatchesGolden) {
  const std::vector<int64_t> counters = golden().ints("philox.counter");
  const std::vector<int64_t> keys = golden().ints("philox.key");
  const std::vector<int64_t> want = golden().ints("philox.words");
  ASSERT_EQ(counters.size(), keys.size() * 2);
  const auto word = [](int64_t value) { return static_cast<uint32_t>(value); };
  for (size_t i = 0; i * 4 < counters.size(); ++i) {
    const std::array<uint32_t, 4> got =
        philox4x32({word(counters[i * 4]), word(counters[i * 4 + 1]), word(counters[i * 4 + 2]),
                    word(counters[i * 4 + 3])},
                   {word(keys[i * 2]), word(keys[i * 2 + 1])});
    for (size_t w = 0; w < 4; ++w) EXPECT_EQ(got[w], want[i * 4 + w]) << "vector " << i;
  }
}

TEST(NoiseWords, MatchGoldenInAnyOrder) {
  const std::vector<int64_t> seeds = golden().ints("noise.seed");
  const std::vector<int64_t> positions = golden().ints("noise.position");
  const std::vector<int64_t> words = golden().ints("noise.words");
  const std::vector<float> noise = golden().floats("noise.gumbel");
  const size_t num_ids = words.size() / seeds.size();
  for (size_t i = 0; i < seeds.size(); ++i) {
    NoiseWords ascending(static_cast<uint64_t>(seeds[i]), positions[i]);
    NoiseWords scattered(static_cast<uint64_t>(seeds[i]), positions[i]);
    for (size_t id = 0; id < num_ids; ++id) {
      const auto word = static_cast<uint32_t>(words[i * num_ids + id]);
      EXPECT_EQ(ascending(static_cast<int32_t>(id)), word) << "vector " << i << ", id " << id;
      EXPECT_NEAR(gumbel_noise(word), noise[i * num_ids + id], 2e-6);
      const size_t other = id * 7 % num_ids;
      EXPECT_EQ(scattered(static_cast<int32_t>(other)),
                static_cast<uint32_t>(words[i * num_ids + other]));
    }
  }
}

TEST(GumbelNoise, IsFiniteAndBounded) {
  for (const uint32_t word : {0U, 1U, 0x7FFFFFFFU, 0x80000000U, 0xFFFFFFFEU, 0xFFFFFFFFU}) {
    EXPECT_TRUE(std::isfinite(gumbel_noise(word))) << word;
    EXPECT_LT(gumbel_noise(word), kMaxGumbelNoise) << word;
  }
}

std::vector<Candidate> candidates_of(std::span<const float> logits) {
  std::vector<Candidate> result;
  for (size_t v = 0; v < logits.size(); ++v) {
    if (std::isinf(logits[v]) && logits[v] < 0) continue;
    result.push_back({logits[v], static_cast<int32_t>(v)});
  }
  return result;
}

std::vector<int32_t> kept(const SampleRow& row, std::span<const float> logits) {
  std::vector<Candidate> candidates = candidates_of(logits);
  const auto exp = [](double x) { return std::exp(x); };
  std::vector<int32_t> ids;
  for (const Candidate& c : filter_candidates(row, candidates, exp)) ids.push_back(c.id);
  std::ranges::sort(ids);
  return ids;
}

TEST(FilterCandidates, KeepsTheGoldenSets) {
  const std::vector<float> logits = golden().floats("sampling.logits");
  const std::vector<int64_t> bits = golden().ints("sampling.kept_bits");
  const std::vector<float> temperature = golden().floats("sampling.temperature");
  const std::vector<int64_t> top_k = golden().ints("sampling.top_k");
  const std::vector<float> top_p = golden().floats("sampling.top_p");
  const std::vector<float> min_p = golden().floats("sampling.min_p");
  const auto rows = static_cast<size_t>(golden().shape("sampling.logits")[0]);
  const size_t vocab = logits.size() / rows;
  const size_t row_bytes = (vocab + 7) / 8;
  for (size_t variant = 0; variant < temperature.size(); ++variant) {
    if (temperature[variant] == 0) continue;
    for (size_t r = 0; r < rows; ++r) {
      std::vector<int32_t> want;
      for (size_t v = 0; v < vocab; ++v) {
        const int64_t byte = bits[(variant * rows + r) * row_bytes + v / 8];
        if (((byte >> (v % 8)) & 1) != 0) want.push_back(static_cast<int32_t>(v));
      }
      const SampleRow row = {.temperature = temperature[variant],
                             .top_p = top_p[variant],
                             .min_p = min_p[variant],
                             .top_k = static_cast<int32_t>(top_k[variant])};
      EXPECT_EQ(kept(row, std::span(logits).subspan(r * vocab, vocab)), want)
          << "variant " << variant << ", row " << r;
    }
  }
}

/// Item 15 word for word, on a sorted list.
std::vector<int32_t> kept_by_sorting(const SampleRow& row, std::span<const float> logits) {
  std::vector<Candidate> c = candidates_of(logits);
  std::ranges::sort(c, ranks_before);
  if (row.top_k > 0) c.resize(std::min(c.size(), static_cast<size_t>(row.top_k)));
  const float z_first = c[0].logit / row.temperature;
  const auto share = [&](const Candidate& x) {
    return static_cast<float>(std::exp(static_cast<double>(x.logit / row.temperature - z_first)));
  };
  const auto mass = [&](const Candidate& x) {
    return std::floor(static_cast<double>(share(x)) * 0x1p32);
  };
  double total = 0;
  for (const Candidate& x : c) total += mass(x);
  double before = 0;
  std::vector<int32_t> ids;
  for (const Candidate& x : c) {
    const bool in_nucleus =
        row.top_p >= 1 || ids.empty() || before < static_cast<double>(row.top_p) * total;
    if (in_nucleus && share(x) >= row.min_p) ids.push_back(x.id);
    before += mass(x);
  }
  std::ranges::sort(ids);
  return ids;
}

TEST(FilterCandidates, EqualsSorting) {
  constexpr uint64_t kSeed = 20260731;
  Random random(kSeed);
  for (int trial = 0; trial < 600; ++trial) {
    SCOPED_TRACE(fmt::format("seed {}, trial {}", kSeed, trial));
    std::vector<float> logits = random.normals(1 + random.below(70), 4);
    // Half of the trials: few different values, so that most are ties.
    if (trial % 2 == 0) {
      for (float& x : logits) x = std::round(x / 3);
    }
    const SampleRow row = {.temperature = 0.1F + 2 * random.uniform(),
                           .top_p = trial % 3 == 0 ? 1 : 0.01F + 0.99F * random.uniform(),
                           .min_p = trial % 5 < 3 ? 0 : random.uniform(),
                           .top_k = static_cast<int32_t>(random.below(30))};
    EXPECT_EQ(kept(row, logits), kept_by_sorting(row, logits));
  }
}

TEST(FilterCandidates, KeepsTheFirstAtTheExtremes) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const std::vector<float> logits = {1, 3, 3, kInf, kInf, 2};
  EXPECT_EQ(kept({.temperature = 1, .top_p = 1e-30F}, logits), std::vector<int32_t>{3});
  EXPECT_EQ(kept({.temperature = 1, .min_p = 1}, logits), (std::vector<int32_t>{3, 4}));
  // A temperature so small that every quotient overflows.
  const std::vector<float> finite = {1, 3, 3, 2};
  EXPECT_EQ(kept({.temperature = 1e-45F, .min_p = 1}, finite), (std::vector<int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(kept({.temperature = 1e-45F, .top_p = 0.1F}, finite), std::vector<int32_t>{1});
}

TEST(CheckSample, RefusesWhatTheOperationCannotUse) {
  const Tensor logits(DType::kF32, {1, 40});
  const Tensor i32(DType::kI32, {1});
  const Tensor i64(DType::kI64, {1});
  const Tensor f32(DType::kF32, {1});
  const Tensor mask(DType::kI32, {1, 1});  // 40 ids need two words
  SampleRow row;
  SampleParams p{.logits = logits,
                 .rows = std::span(&row, 1),
                 .slot = i32,
                 .position = i64,
                 .counts = {},
                 .bias = {},
                 .mask = {},
                 .token = i32,
                 .logprob = f32,
                 .top_tokens = {},
                 .top_logprobs = {}};
  EXPECT_NO_THROW(check(p));
  row = {.presence_penalty = 1};
  EXPECT_THROW(check(p), Error) << "a penalty without counts";
  row = {.temperature = std::numeric_limits<float>::quiet_NaN()};
  EXPECT_THROW(check(p), Error);
  row = {.forced_token = 40};
  EXPECT_THROW(check(p), Error);
  row = {};
  p.mask = mask;
  EXPECT_THROW(check(p), Error);
}

}  // namespace
}  // namespace deepinfer::ops
