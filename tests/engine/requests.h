#pragma once

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
  OutputStream stream = engine.submit({prompt, sampling});
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

}  // namespace deepinfer::testing
