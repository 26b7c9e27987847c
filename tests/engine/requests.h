#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

#include "deepinfer/engine.h"
#include "tests/support/tensors.h"

/// Requests that tests of the engine share.
namespace deepinfer::testing {

/// The trained model of this repository, with a tokenizer.
inline std::filesystem::path tiny_model() {
  return std::filesystem::path(DEEPINFER_SOURCE_DIR) / "models" / "tiny-v41";
}

inline SamplingParams greedy(int64_t max_tokens) {
  SamplingParams sampling;
  sampling.max_tokens = max_tokens;
  sampling.temperature = 0;
  return sampling;
}

inline SamplingParams seeded(int64_t max_tokens, uint64_t seed) {
  SamplingParams sampling;
  sampling.max_tokens = max_tokens;
  sampling.seed = seed;
  return sampling;
}

/// Random ids below `vocab`.
inline std::vector<int32_t> random_prompt(Random& random, int64_t size, int64_t vocab) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < size; ++i) ids.push_back(static_cast<int32_t>(random.below(vocab)));
  return ids;
}

inline Completion complete(Engine& engine, const std::vector<int32_t>& prompt,
                           const SamplingParams& sampling) {
  OutputStream stream = engine.submit({.prompt = prompt, .sampling = sampling});
  return collect(stream);
}

inline std::vector<int32_t> ids_of(const Completion& completion) {
  std::vector<int32_t> ids;
  for (const GeneratedToken& token : completion.tokens) ids.push_back(token.id);
  return ids;
}

/// Statistics after everything that was asked before: a trace is computed on the engine thread
/// after the step of its score, so that step's statistics are there when it returns.
inline EngineStats settled_stats(Engine& engine) {
  engine.score(std::vector<int32_t>{0}, {.trace = true});
  return engine.stats();
}

/// Nothing waits, runs or holds anything: every page and every ring snapshot is free or cached.
inline void expect_idle(Engine& engine) {
  const EngineStats stats = settled_stats(engine);
  EXPECT_EQ(stats.pages_held, 0);
  EXPECT_EQ(stats.pages_free + stats.pages_cached, stats.pages_total);
  EXPECT_EQ(stats.snapshot_units_held, 0);
  EXPECT_EQ(stats.snapshot_units_free + stats.snapshot_units_cached, stats.snapshot_units_total);
  EXPECT_EQ(stats.running, 0);
  EXPECT_EQ(stats.waiting, 0);
}

/// Equal to the last bit: text, tokens, log-probabilities, reason.
inline void expect_same_bits(const Completion& got, const Completion& want) {
  const auto same = [](float a, float b) {
    return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
  };
  EXPECT_EQ(got.text, want.text);
  EXPECT_EQ(got.finish_reason, want.finish_reason);
  EXPECT_EQ(got.error, "");
  ASSERT_EQ(ids_of(got), ids_of(want));
  for (size_t i = 0; i < got.tokens.size(); ++i) {
    const GeneratedToken& a = got.tokens[i];
    const GeneratedToken& b = want.tokens[i];
    EXPECT_TRUE(same(a.logprob, b.logprob)) << "token " << i;
    ASSERT_EQ(a.top.size(), b.top.size());
    for (size_t t = 0; t < a.top.size(); ++t) {
      EXPECT_EQ(a.top[t].token, b.top[t].token);
      EXPECT_TRUE(same(a.top[t].logprob, b.top[t].logprob));
    }
  }
}

}  // namespace deepinfer::testing
