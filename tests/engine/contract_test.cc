#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <vector>

#include "deepinfer/engine.h"
#include "tests/checkpoint/temporary_directory.h"
#include "tests/engine/requests.h"
#include "tests/support/golden.h"

// docs/design.md, promise 1: tokens and log-probabilities are a function of the request alone.
// Here: of neighbours, cache hits, evictions, preemption, threads and restarts they are not.
namespace deepinfer::testing {
namespace {

constexpr uint64_t kSeed = 20261201;
constexpr int64_t kVocab = 512;  // of nano-d

EngineOptions cold() {
  return {.model = data_path("nano-d"),
          .threads = 2,
          .max_batch = 1,
          .max_model_len = 1024,
          .kv_tokens = 4096,
          .prefix_cache = false};
}

EngineOptions cached(int64_t kv_tokens = 16384) {
  EngineOptions options = cold();
  options.max_batch = 8;
  options.kv_tokens = kv_tokens;
  options.prefix_cache = true;
  options.snapshot_interval = 128;
  return options;
}

/// Prompts that share prefixes: leaves of a few texts, cut anywhere, then on at random.
class Prompts {
 public:
  explicit Prompts(uint64_t seed) : random_(seed) {
    for (int i = 0; i < 3; ++i) texts_.push_back(random_prompt(random_, 400, kVocab));
  }

  std::vector<int32_t> next(int64_t max_size) {
    const std::vector<int32_t>& text = texts_[static_cast<size_t>(random_.below(3))];
    const int64_t size = 1 + random_.below(max_size);
    const int64_t shared = std::min<int64_t>(random_.below(2 * size), size);
    std::vector<int32_t> prompt(text.begin(), text.begin() + shared);
    const std::vector<int32_t> rest = random_prompt(random_, size - shared, kVocab);
    prompt.insert(prompt.end(), rest.begin(), rest.end());
    return prompt;
  }
  Random& random() { return random_; }

 private:
  Random random_;
  std::vector<std::vector<int32_t>> texts_;
};

SamplingParams any_sampling(Random& random, int64_t max_tokens) {
  SamplingParams sampling = random.below(2) == 0
                                ? greedy(max_tokens)
                                : seeded(max_tokens, static_cast<uint64_t>(random.below(1000)));
  sampling.ignore_eos = random.below(2) == 0;
  if (random.below(3) == 0) sampling.logprobs = static_cast<int32_t>(random.below(5));
  if (random.below(4) == 0) sampling.top_p = 0.9F;
  if (random.below(4) == 0) sampling.repetition_penalty = 1.2F;
  if (random.below(4) == 0) sampling.presence_penalty = 0.4F;
  if (random.below(4) == 0) {
    sampling.stop_token_ids = {static_cast<int32_t>(random.below(kVocab))};
    sampling.min_tokens = std::min<int64_t>(2, max_tokens);
  }
  if (random.below(4) == 0) sampling.logit_bias = {{3, 2.0F}, {7, -100.0F}};
  return sampling;
}

std::vector<Request> random_requests(uint64_t seed, int64_t count, int64_t max_prompt) {
  Prompts prompts(seed);
  std::vector<Request> requests;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t tokens = 1 + prompts.random().below(10);
    requests.push_back({.prompt = prompts.next(max_prompt),
                        .sampling = any_sampling(prompts.random(), tokens),
                        .priority = static_cast<int32_t>(prompts.random().below(3))});
    if (prompts.random().below(5) == 0) requests.back().cache_salt = "tenant";
  }
  return requests;
}

std::vector<Completion> one_by_one(Engine& engine, const std::vector<Request>& requests) {
  std::vector<Completion> completions;
  for (const Request& request : requests) {
    OutputStream stream = engine.submit(request);
    completions.push_back(collect(stream));
  }
  return completions;
}

void expect_equal(const std::vector<Completion>& got, const std::vector<Completion>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    SCOPED_TRACE(fmt::format("seed {}, request {}", kSeed, i));
    expect_same_bits(got[i], want[i]);
  }
}

TEST(Contract, TwoHundredConcurrentRequestsEqualTheirSoloRuns) {
  const std::vector<Request> requests = random_requests(kSeed, 200, 100);
  const std::vector<Completion> alone = one_by_one(*Engine::create(cold()), requests);

  EngineOptions options = cached(1536);  // few pages: evictions and preemptions
  options.prefill_chunk = 96;
  const std::unique_ptr<Engine> engine = Engine::create(options);
  Random random(kSeed);
  std::vector<OutputStream> streams;
  std::vector<OutputStream> aborted;
  for (const Request& request : requests) {
    streams.push_back(engine->submit(request));
    if (random.below(3) != 0) continue;
    SamplingParams endless = greedy(500);
    endless.ignore_eos = true;
    aborted.push_back(engine->submit({.prompt = request.prompt, .sampling = endless}));
    if (random.below(2) == 0) aborted.back().cancel();
  }
  aborted.erase(aborted.begin(), aborted.begin() + static_cast<int64_t>(aborted.size()) / 2);
  std::vector<Completion> together;
  for (OutputStream& stream : streams) {
    together.push_back(collect(stream));
    if (!aborted.empty() && random.below(4) == 0) aborted.pop_back();
  }
  aborted.clear();
  expect_equal(together, alone);
  expect_idle(*engine);
  const EngineStats stats = engine->stats();
  EXPECT_GT(stats.cached_tokens, 0);
  EXPECT_GT(stats.page_evictions, 0);
}

TEST(Contract, HitsContinueWithEqualBits) {
  const std::vector<Request> requests = random_requests(kSeed + 1, 40, 250);
  const std::vector<Completion> want = one_by_one(*Engine::create(cold()), requests);
  for (const int64_t kv_tokens : {16384, 1024}) {  // with room, and with evictions all the time
    const std::unique_ptr<Engine> engine = Engine::create(cached(kv_tokens));
    expect_equal(one_by_one(*engine, requests), want);
    expect_equal(one_by_one(*engine, requests), want);
    EXPECT_GT(engine->stats().cached_tokens, 0);
    expect_idle(*engine);
  }
}

// A pool that holds little more than one request, so that almost every hit comes from a tier; then
// another engine over the same folder: a restart.
TEST(Contract, HitsFromHostMemoryAndFromFilesContinueWithEqualBits) {
  const std::vector<Request> requests = random_requests(kSeed + 2, 30, 250);
  const std::vector<Completion> want = one_by_one(*Engine::create(cold()), requests);
  const checkpoint::TemporaryDirectory folder;
  for (const bool in_files : {false, true}) {
    SCOPED_TRACE(in_files);
    EngineOptions options = cached(1024);
    options.snapshots = 4;
    if (in_files) {
      options.cache_dir = folder.path();
    } else {
      options.host_cache_bytes = int64_t{64} << 20;
    }
    for (int round = 0; round < (in_files ? 2 : 1); ++round) {
      const std::unique_ptr<Engine> engine = Engine::create(options);
      expect_equal(one_by_one(*engine, requests), want);
      expect_equal(one_by_one(*engine, requests), want);
      expect_idle(*engine);
      const EngineStats stats = engine->stats();
      EXPECT_GT(stats.tier_entries_loaded, 0);
      EXPECT_GT(stats.tier_bytes, 0);
      EXPECT_EQ(stats.loading, 0);
    }
  }
}

TEST(Contract, ConcurrentRequestsHitFilesOfAnEarlierRun) {
  const std::vector<Request> requests = random_requests(kSeed + 3, 200, 250);
  const std::vector<Completion> want = one_by_one(*Engine::create(cold()), requests);
  const checkpoint::TemporaryDirectory folder;
  EngineOptions options = cached(2048);
  options.cache_dir = folder.path();
  one_by_one(*Engine::create(options), requests);
  for (const int threads : {1, 3}) {
    options.threads = threads;
    const std::unique_ptr<Engine> engine = Engine::create(options);
    std::vector<OutputStream> streams;
    std::vector<OutputStream> aborted;  // some while their pages are on the way
    for (const Request& request : requests) {
      aborted.push_back(engine->submit(request));
      streams.push_back(engine->submit(request));
      if (aborted.size() % 3 != 0) aborted.back().cancel();
    }
    aborted.clear();
    std::vector<Completion> together;
    for (OutputStream& stream : streams) together.push_back(collect(stream));
    expect_equal(together, want);
    expect_idle(*engine);
    EXPECT_GT(engine->stats().tier_entries_loaded, 0);
  }
}

// What cannot be read is a miss: damaged files, files that have gone, a folder that has gone.
TEST(Contract, DamagedAndMissingFilesChangeNothing) {
  const std::vector<Request> requests = random_requests(kSeed + 4, 20, 250);
  const std::vector<Completion> want = one_by_one(*Engine::create(cold()), requests);
  const checkpoint::TemporaryDirectory folder;
  EngineOptions options = cached(2048);
  options.cache_dir = folder.path();
  one_by_one(*Engine::create(options), requests);
  Random random(kSeed);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.path())) {
    if (!entry.is_regular_file() || entry.file_size() < 4096) continue;
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    for (int i = 0; i < 200; ++i) {
      file.seekp(random.below(static_cast<int64_t>(entry.file_size())));
      file.put(static_cast<char>(random.below(256)));
    }
  }
  {
    const std::unique_ptr<Engine> engine = Engine::create(options);
    expect_equal(one_by_one(*engine, requests), want);
    // The folder goes while the engine has it open.
    for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
      std::filesystem::remove_all(entry.path());
    }
    expect_equal(one_by_one(*engine, requests), want);
    expect_idle(*engine);
  }
  const std::unique_ptr<Engine> engine = Engine::create(options);
  expect_equal(one_by_one(*engine, requests), want);
}

// D07: one request in every company, place and state of the caches.
TEST(Contract, OneRequestGivesOneAnswer) {
  Random random(kSeed + 7);
  const std::vector<int32_t> prompt = random_prompt(random, 300, kVocab);
  for (const bool is_greedy : {true, false}) {
    SCOPED_TRACE(is_greedy);
    SamplingParams sampling = is_greedy ? greedy(12) : seeded(12, 5);
    sampling.ignore_eos = true;
    const std::unique_ptr<Engine> alone = Engine::create(cold());
    const Completion want = complete(*alone, prompt, sampling);
    for (const int64_t chunk : {64, 256}) {
      EngineOptions options = cached();
      options.prefill_chunk = chunk;
      const std::unique_ptr<Engine> engine = Engine::create(options);
      std::vector<OutputStream> batch;  // of 8
      for (int i = 0; i < 7; ++i) {
        batch.push_back(engine->submit({.prompt = random_prompt(random, 20, kVocab)}));
      }
      expect_same_bits(complete(*engine, prompt, sampling), want);
      for (OutputStream& stream : batch) collect(stream);
      SamplingParams many = greedy(500);  // two of them are a thousand further steps
      many.ignore_eos = true;
      for (int i = 0; i < 2; ++i) complete(*engine, random_prompt(random, 5, kVocab), many);
      const Completion warm = complete(*engine, prompt, sampling);
      EXPECT_GT(warm.cached_tokens, 0);
      expect_same_bits(warm, want);
    }
  }
  SamplingParams hot;
  hot.temperature = 1.5F;
  hot.max_tokens = 20;
  const std::unique_ptr<Engine> engine = Engine::create(cached());
  const Completion first = complete(*engine, prompt, hot);
  EXPECT_NE(ids_of(complete(*engine, prompt, hot)), ids_of(first));
}

// E04: every length around page edges, odd ones too, in one pass and in passes of 16.
TEST(Contract, EveryLengthAroundPageEdgesHitsExactly) {
  Random random(kSeed);
  const std::vector<int32_t> text = random_prompt(random, 300, kVocab);
  std::vector<Request> requests;
  for (const int64_t around : {1, 3, 21, 64, 128, 192}) {
    for (int64_t size = std::max<int64_t>(around - 2, 1); size <= around + 2; ++size) {
      requests.push_back({.prompt = {text.begin(), text.begin() + size}, .sampling = greedy(5)});
      requests.back().sampling.ignore_eos = true;
    }
  }
  const std::vector<Completion> want = one_by_one(*Engine::create(cold()), requests);
  for (const int64_t chunk : {16, 512}) {
    EngineOptions options = cached();
    options.prefill_chunk = chunk;
    const std::unique_ptr<Engine> engine = Engine::create(options);
    expect_equal(one_by_one(*engine, requests), want);
    expect_equal(one_by_one(*engine, requests), want);
  }
}

// E02: a prompt sent again restarts at its last page boundary (64 tokens; one token is computed in
// any case), and cached_tokens says so.
TEST(PrefixCache, ARepeatedPromptRestartsAtItsLastPage) {
  const std::unique_ptr<Engine> engine = Engine::create(cached());
  Random random(kSeed);
  for (const int64_t size : {1, 2, 63, 64, 65, 127, 128, 129, 700, 1000}) {
    SCOPED_TRACE(size);
    const std::vector<int32_t> prompt = random_prompt(random, size, kVocab);
    const Completion first = complete(*engine, prompt, greedy(3));
    EXPECT_EQ(first.cached_tokens, 0);
    const Completion second = complete(*engine, prompt, greedy(3));
    EXPECT_EQ(second.cached_tokens, (size - 1) / 64 * 64);
    expect_same_bits(second, first);
  }
}

TEST(PrefixCache, ASharedPrefixIsReusedAndAConversationGoesOn) {
  EngineOptions options = cached();
  options.snapshot_interval = 64;
  const std::unique_ptr<Engine> engine = Engine::create(options);
  Random random(kSeed);
  std::vector<int32_t> first = random_prompt(random, 700, kVocab);
  std::vector<int32_t> second = first;
  for (int64_t i = 0; i < 290; ++i) {
    first.push_back(static_cast<int32_t>(random.below(kVocab)));
    second.push_back(static_cast<int32_t>(random.below(kVocab)));
  }
  complete(*engine, first, greedy(2));
  EXPECT_GE(complete(*engine, second, greedy(2)).cached_tokens, 700 - 64);

  // The answer to a first turn is cached, too.
  std::vector<int32_t> turn = random_prompt(random, 100, kVocab);
  SamplingParams sampling = greedy(100);
  sampling.ignore_eos = true;
  const Completion answer = complete(*engine, turn, sampling);
  for (const int32_t id : ids_of(answer)) turn.push_back(id);
  turn.push_back(5);
  EXPECT_EQ(complete(*engine, turn, greedy(2)).cached_tokens, 192);
}

TEST(PrefixCache, SaltsKeepTenantsApart) {
  const std::unique_ptr<Engine> engine = Engine::create(cached());
  Random random(kSeed);
  const std::vector<int32_t> prompt = random_prompt(random, 200, kVocab);
  const auto cached_with = [&](std::optional<std::string> salt) {
    OutputStream stream =
        engine->submit({.prompt = prompt, .sampling = greedy(2), .cache_salt = std::move(salt)});
    return collect(stream).cached_tokens;
  };
  EXPECT_EQ(cached_with({}), 0);
  EXPECT_EQ(cached_with("a"), 0);
  EXPECT_EQ(cached_with("b"), 0);
  EXPECT_EQ(cached_with("a"), 192);
  EXPECT_EQ(cached_with({}), 192);
  EXPECT_THROW(cached_with(""), Error);
  EXPECT_THROW(cached_with("\xC3\x28"), Error);
}

TEST(PrefixCache, BoundedReplayDependsOnThePromptAlone) {
  EngineOptions options = cached();
  options.replay = "bounded";
  options.keep_tokens = 140;
  std::vector<Request> requests = random_requests(kSeed + 2, 20, 350);
  EngineOptions plain = cold();
  plain.replay = options.replay;
  plain.keep_tokens = options.keep_tokens;
  const std::vector<Completion> want = one_by_one(*Engine::create(plain), requests);
  for (const int64_t chunk : {50, 512}) {
    options.prefill_chunk = chunk;
    const std::unique_ptr<Engine> engine = Engine::create(options);
    EXPECT_NE(engine->system_fingerprint(), Engine::create(cold())->system_fingerprint());
    std::vector<OutputStream> streams;
    for (const Request& request : requests) streams.push_back(engine->submit(request));
    std::vector<Completion> together;
    for (OutputStream& stream : streams) together.push_back(collect(stream));
    expect_equal(together, want);
    expect_equal(one_by_one(*engine, requests), want);
    expect_idle(*engine);
  }
}

// F04: whoever leaves, at whatever moment, leaves nothing behind.
TEST(Engine, DisconnectsLeaveNothingRunning) {
  EngineOptions options = cached(4096);
  options.prefill_chunk = 64;
  options.max_batch = 4;
  const std::unique_ptr<Engine> engine = Engine::create(options);
  Random random(kSeed);
  SamplingParams endless = greedy(400);
  endless.ignore_eos = true;
  std::vector<OutputStream> streams;
  for (int round = 0; round < 60; ++round) {
    const std::vector<int32_t> prompt = random_prompt(random, 1 + random.below(500), kVocab);
    streams.push_back(engine->submit({.prompt = prompt, .sampling = endless}));
    const int64_t kind = random.below(4);
    if (kind == 0) streams.back().next();    // after a first token
    if (kind == 1) streams.back().cancel();  // queued, or early in its prompt
    if (kind == 2 || streams.size() > 6) streams.erase(streams.begin());
  }
  streams.clear();
  EXPECT_EQ(complete(*engine, {4}, greedy(4)).error, "");
  expect_idle(*engine);
}

// F02 with a model: six requests of 60 tokens on a pool that holds half of them.
TEST(Contract, PreemptionChangesNothing) {
  Random random(kSeed);
  std::vector<Request> requests;
  for (uint64_t i = 0; i < 6; ++i) {
    requests.push_back({.prompt = random_prompt(random, 60, kVocab),
                        .sampling = i % 2 == 0 ? greedy(60) : seeded(60, i)});
    requests.back().sampling.ignore_eos = true;
  }
  const std::vector<Completion> want = one_by_one(*Engine::create(cold()), requests);
  EngineOptions options = cached(384);
  options.max_model_len = 384;
  const std::unique_ptr<Engine> engine = Engine::create(options);
  std::vector<OutputStream> streams;
  for (const Request& request : requests) streams.push_back(engine->submit(request));
  std::vector<Completion> got;
  for (OutputStream& stream : streams) got.push_back(collect(stream));
  expect_equal(got, want);
  EXPECT_GT(engine->stats().preemptions, 0);
  expect_idle(*engine);
}

// The trained model has what nano-d lacks: ratio 2, Engram, a tokenizer, layers above the last
// source.
TEST(Contract, TheTinyModelHitsExactly) {
  EngineOptions options = cold();
  options.model = tiny_model();
  Random random(kSeed);
  const std::vector<int32_t> text = random_prompt(random, 420, 4096);
  std::vector<Request> requests;
  for (const int64_t size : {419, 200, 129, 419, 333, 200}) {
    requests.push_back({.prompt = {text.begin(), text.begin() + size}, .sampling = greedy(6)});
    requests.back().sampling.ignore_eos = true;
    requests.back().sampling.logprobs = 2;
  }
  const std::vector<Completion> want = one_by_one(*Engine::create(options), requests);
  options.prefix_cache = true;
  options.snapshot_interval = 128;
  options.prefill_chunk = 100;
  options.max_batch = 3;
  const std::unique_ptr<Engine> engine = Engine::create(options);
  expect_equal(one_by_one(*engine, requests), want);
  EXPECT_GT(engine->stats().cached_tokens, 0);
  EXPECT_GT(engine->stats().replayed_rows, 0);
  EXPECT_LT(engine->stats().layer_rows, engine->stats().full_layer_rows);
}

}  // namespace
}  // namespace deepinfer::testing
