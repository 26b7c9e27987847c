#include "tests/engine/levels_cases.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "deepinfer/engine.h"
#include "tests/engine/requests.h"
#include "tests/support/golden.h"

namespace deepinfer::testing {
namespace {

constexpr uint64_t kSeed = 20261204;

/// The levels that this machine's processor has.
std::vector<std::string> levels(const std::filesystem::path& model) {
  std::vector<std::string> found;
  for (const char* level : {"avx512bf16", "avx512", "avx2", "neon", "portable"}) {
    try {
      make_level_engine(model, level, 1, 64);
      found.emplace_back(level);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << error.what();
      EXPECT_NE(std::string(error.what()).find(level), std::string::npos) << error.what();
    }
  }
  return found;
}

}  // namespace

std::unique_ptr<Engine> make_level_engine(const std::filesystem::path& model,
                                          const std::string& level, int threads, int64_t chunk) {
  return Engine::create({.model = model,
                         .backend = "cpu",
                         .cpu_level = level,
                         .threads = threads,
                         .prefill_chunk = chunk,
                         .max_batch = 4,
                         .max_model_len = 256,
                         .kv_tokens = 1024});
}

void expect_one_family(const std::filesystem::path& model, int64_t prompt_tokens) {
  SCOPED_TRACE(fmt::format("{}, seed {}", model.string(), kSeed));
  std::optional<std::vector<float>> want;
  std::vector<Completion> want_completions;
  const std::vector<std::string> all = levels(model);
  ASSERT_FALSE(all.empty());
  for (const std::string& level : all) {
    struct Run {
      int threads;
      int64_t chunk;
    };
    for (const Run& run : {Run{1, 512}, Run{2, 3}, Run{3, 50}}) {
      SCOPED_TRACE(fmt::format("{}, {} threads, chunks of {}", level, run.threads, run.chunk));
      const std::unique_ptr<Engine> engine =
          make_level_engine(model, level, run.threads, run.chunk);
      Random random(kSeed);
      const int64_t vocab = engine->model_info().vocab_size;
      const std::vector<int32_t> prompt = random_prompt(random, prompt_tokens, vocab);
      const std::vector<float> logits = engine->score(prompt, {.logits = true}).logits;
      ASSERT_EQ(static_cast<int64_t>(logits.size()), prompt_tokens * vocab);
      if (!want) want = logits;
      EXPECT_EQ(std::memcmp(logits.data(), want->data(), logits.size() * sizeof(float)), 0);

      // A batch of unequal requests.
      std::vector<OutputStream> streams;
      for (const int64_t size : {1, 5, 40}) {
        SamplingParams sampling = seeded(6, kSeed + static_cast<uint64_t>(size));
        sampling.ignore_eos = true;
        streams.push_back(engine->submit({random_prompt(random, size, vocab), sampling}));
      }
      std::vector<Completion> completions;
      for (OutputStream& stream : streams) completions.push_back(collect(stream));
      if (want_completions.empty()) want_completions = completions;
      for (size_t i = 0; i < completions.size(); ++i) {
        ASSERT_EQ(ids_of(completions[i]), ids_of(want_completions[i])) << "request " << i;
        for (size_t t = 0; t < completions[i].tokens.size(); ++t) {
          EXPECT_EQ(completions[i].tokens[t].logprob, want_completions[i].tokens[t].logprob);
        }
      }
    }
  }
}

}  // namespace deepinfer::testing
