#include "sampling/sample_row.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/golden.h"

namespace deepinfer::sampling {
namespace {

constexpr int32_t kEos = 1;

TEST(SeedOfChoice, MatchesGolden) {
  const testing::Golden golden(testing::data_path("sampling.safetensors"));
  const std::vector<int64_t> seeds = golden.ints("seed.seed");
  const std::vector<int64_t> choices = golden.ints("seed.choice");
  const std::vector<int64_t> want = golden.ints("seed.seed_of_choice");
  for (size_t i = 0; i < seeds.size(); ++i) {
    EXPECT_EQ(seed_of_choice(static_cast<uint64_t>(seeds[i]), choices[i]),
              static_cast<uint64_t>(want[i]))
        << "vector " << i;
  }
}

TEST(SampleRow, CarriesTheParameters) {
  SamplingParams params;
  params.temperature = 0.5F;
  params.top_p = 0.9F;
  params.min_p = 0.1F;
  params.top_k = -1;
  params.repetition_penalty = 1.5F;
  params.frequency_penalty = 0.25F;
  params.presence_penalty = -0.25F;
  const ops::SampleRow row = sample_row(params, 9, kEos, 0);
  EXPECT_EQ(row.seed, 9U);
  EXPECT_EQ(row.temperature, 0.5F);
  EXPECT_EQ(row.top_p, 0.9F);
  EXPECT_EQ(row.min_p, 0.1F);
  EXPECT_EQ(row.top_k, 0) << "-1 is off, as 0 is";
  EXPECT_EQ(row.repetition_penalty, 1.5F);
  EXPECT_EQ(row.frequency_penalty, 0.25F);
  EXPECT_EQ(row.presence_penalty, -0.25F);
  EXPECT_EQ(row.forced_token, -1);
  EXPECT_EQ(row.banned_token, -1);
}

TEST(SampleRow, BansTheEndTokenBeforeMinTokens) {
  SamplingParams params;
  params.min_tokens = 3;
  EXPECT_EQ(sample_row(params, 0, kEos, 2).banned_token, kEos);
  EXPECT_EQ(sample_row(params, 0, kEos, 3).banned_token, -1);
  EXPECT_EQ(sample_row(params, 0, -1, 0).banned_token, -1) << "the model has no end token";
  params.ignore_eos = true;
  EXPECT_EQ(sample_row(params, 0, kEos, 2).banned_token, -1) << "ignore_eos: like any other token";
}

TEST(FillBias, HoldsBiasesAndEarlyStopTokens) {
  SamplingParams params;
  EXPECT_FALSE(needs_bias(params, 0));
  params.min_tokens = 2;
  EXPECT_FALSE(needs_bias(params, 0));
  params.stop_token_ids = {3};
  EXPECT_TRUE(needs_bias(params, 1));
  EXPECT_FALSE(needs_bias(params, 2));
  params.logit_bias = {{0, -2.5F}, {3, 50}};
  EXPECT_TRUE(needs_bias(params, 2));
  std::vector<float> row(5, 7);
  fill_bias(params, 1, row);
  EXPECT_EQ(row, (std::vector<float>{-2.5F, 0, 0, -INFINITY, 0}));
  fill_bias(params, 2, row);
  EXPECT_EQ(row, (std::vector<float>{-2.5F, 0, 0, 50, 0}));
}

}  // namespace
}  // namespace deepinfer::sampling
