#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "base/philox.h"
#include "deepinfer/engine.h"
#include "engine/setup.h"
#include "engine/step_loop.h"
#include "engine/step_thread.h"

// What exact skip saves of a prompt, what a cache hit saves, and how far bounded replay is from
// exact. prefill_bench [MODEL [LARGEST [PART [SMALLEST]]]]: a checkpoint folder (default:
// random weights, 12 layers, 5 of them above the last KV source), the longest prompt (default
// 4096), one of skip, hits and bounded (default: all) and the shortest prompt. Long prompts of a
// larger model take minutes: then one part at a time.
namespace deepinfer {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

std::vector<int32_t> prompt_of(int64_t size, int64_t vocab, uint64_t seed) {
  std::vector<int32_t> prompt;
  for (int64_t i = 0; i < size; ++i) {
    const uint64_t word = mix64(seed * 1000003 + static_cast<uint64_t>(i));
    prompt.push_back(static_cast<int32_t>(word % static_cast<uint64_t>(vocab)));
  }
  return prompt;
}

struct Prefill {
  double seconds;
  EngineStats stats;
};

/// One prompt on a loop of its own; without `skip` every row runs every layer.
Prefill prefill(const EngineOptions& options, int64_t size, bool skip) {
  const auto checkpoint = checkpoint::Checkpoint::open(options.model, {});
  const checkpoint::ModelConfig& config = checkpoint->config();
  const std::optional<Tokenizer> tokenizer = engine::load_tokenizer(options.model, config);
  const std::vector<int32_t> map =
      engine::load_token_map(*checkpoint, tokenizer ? &*tokenizer : nullptr);
  ThreadPool pool(options.threads, ThreadPool::Pinning::kCores);
  const std::unique_ptr<ops::Backend> backend = engine::make_backend(
      options, config, {.kv_tokens = size + 128, .max_model_len = size + 64}, pool);
  cache::PrefixCache cache({.num_pages = size / 64 + 2, .page_tokens = 64, .identity = "bench"});
  const scheduler::Limits limits = engine::scheduler_limits(options, config);
  cache::RestartRules rules = engine::restart_rules(options, config);
  rules.takes_snapshots = false;
  if (!skip) rules.last_source = config.num_layers - 1;
  cache::CacheShape shape = model::Model::cache_shape(config);
  shape.num_slots = options.max_batch;
  shape.num_pages = cache.size();
  shape.max_slot_tokens = size + 64;
  engine::Runner runner(*checkpoint, *backend, map, engine::step_limits(limits), shape,
                        model::bind_weights(*checkpoint, *backend));
  engine::StepThread executor(runner, [&] { pool.pin_caller(); }, [] {});
  engine::StepLoop loop(executor, cache, limits, rules);
  const auto run = [&](int64_t tokens, uint64_t seed) {
    Request request{.prompt = prompt_of(tokens, config.vocab_size, seed)};
    auto stream = std::make_shared<OutputStream::State>();
    loop.start(seed, std::make_unique<engine::RequestState>(std::move(request), stream, 1, 1,
                                                            config.eos_token_id, nullptr));
    while (!loop.idle()) {
      loop.launch();
      loop.wait_oldest();
    }
  };
  run(std::min<int64_t>(size / 2, 64), 1);  // pages and weights into memory
  const EngineStats before = loop.stats();
  const auto begin = Clock::now();
  run(size, 2);
  Prefill result{seconds_since(begin), loop.stats()};
  result.stats.layer_rows -= before.layer_rows;
  result.stats.full_layer_rows -= before.full_layer_rows;
  return result;
}

void measure_skip(const EngineOptions& options, int64_t smallest, int64_t largest) {
  for (int64_t size = smallest; size <= largest; size *= 2) {
    const Prefill all = prefill(options, size, false);
    const Prefill skipped = prefill(options, size, true);
    const auto rows = static_cast<double>(skipped.stats.layer_rows);
    const auto full = static_cast<double>(skipped.stats.full_layer_rows);
    fmt::print(
        "{:6} tokens: all rows {:7.3f} s, exact skip {:7.3f} s ({:.1f} % less time, {:.1f} % "
        "fewer layer-rows)\n",
        size, all.seconds, skipped.seconds, 100 * (1 - skipped.seconds / all.seconds),
        100 * (1 - rows / full));
  }
}

Completion first_token(Engine& engine, const std::vector<int32_t>& prompt, double& seconds) {
  SamplingParams sampling;
  sampling.max_tokens = 1;
  sampling.temperature = 0;
  sampling.logprobs = SamplingParams::kMaxLogprobs;
  const auto begin = Clock::now();
  OutputStream stream = engine.submit({.prompt = prompt, .sampling = sampling});
  Completion completion = collect(stream);
  seconds = seconds_since(begin);
  return completion;
}

void measure_hits(const EngineOptions& options, int64_t smallest, int64_t largest) {
  const std::unique_ptr<Engine> engine = Engine::create(options);
  for (int64_t size = smallest; size <= largest; size *= 2) {
    const std::vector<int32_t> prompt =
        prompt_of(size, engine->model_info().vocab_size, static_cast<uint64_t>(size));
    double cold = 0;
    double hit = 0;
    first_token(*engine, prompt, cold);
    const Completion again = first_token(*engine, prompt, hit);
    fmt::print("{:6} tokens: first token cold {:7.3f} s, on a hit {:7.4f} s ({} cached)\n", size,
               cold, hit, again.cached_tokens);
  }
}

/// Of the log-probabilities of the tokens that are likely in both modes.
void measure_bounded(EngineOptions options, int64_t smallest, int64_t largest) {
  const std::unique_ptr<Engine> exact = Engine::create(options);
  options.replay = "bounded";
  const std::unique_ptr<Engine> bounded = Engine::create(options);
  for (int64_t size = smallest; size <= largest; size *= 2) {
    double largest_difference = 0;
    double sum = 0;
    int64_t count = 0;
    int64_t same = 0;
    constexpr uint64_t kPrompts = 8;
    for (uint64_t seed = 1; seed <= kPrompts; ++seed) {
      const std::vector<int32_t> prompt =
          prompt_of(size, exact->model_info().vocab_size, seed + static_cast<uint64_t>(size));
      double seconds = 0;
      const GeneratedToken a = first_token(*exact, prompt, seconds).tokens.at(0);
      const GeneratedToken b = first_token(*bounded, prompt, seconds).tokens.at(0);
      same += a.id == b.id ? 1 : 0;
      for (const TokenLogprob& x : a.top) {
        const auto y = std::ranges::find(b.top, x.token, &TokenLogprob::token);
        if (y == b.top.end()) continue;
        const double difference = std::abs(double{x.logprob} - double{y->logprob});
        largest_difference = std::max(largest_difference, difference);
        sum += difference;
        ++count;
      }
    }
    fmt::print(
        "{:6} tokens: bounded ({} kept) against exact: {} of {} first tokens equal, "
        "log-probabilities differ by {:.4f} on average, {:.4f} at most\n",
        size, options.keep_tokens, same, kPrompts,
        sum / static_cast<double>(std::max<int64_t>(count, 1)), largest_difference);
  }
}

int run(int argc, char** argv) {
  EngineOptions options;
  options.model = argc > 1 ? std::string(argv[1]) : "synth:nano,layers=12";
  const int64_t largest = argc > 2 ? std::atoll(argv[2]) : 4096;
  const std::string part = argc > 3 ? argv[3] : "";
  const int64_t smallest = argc > 4 ? std::atoll(argv[4]) : 0;
  if (!part.empty() && part != "skip" && part != "hits" && part != "bounded") {
    fmt::print(stderr, "prefill_bench: PART is \"{}\", expected skip, hits or bounded\n", part);
    return 2;
  }
  if (largest < 256 || smallest < 0 || smallest > largest) {
    fmt::print(stderr, "prefill_bench: prompts of {} to {} tokens, expected at least 256\n",
               smallest, largest);
    return 2;
  }
  options.max_batch = 1;
  options.max_model_len = largest + 64;
  options.kv_tokens = 4 * largest;
  const auto checkpoint = checkpoint::Checkpoint::open(options.model, {});
  cache::CacheShape shape = model::Model::cache_shape(checkpoint->config());
  fmt::print(
      "{}: {} layers, {} above the last KV source; a page of 64 tokens {:.1f} KiB, a ring "
      "snapshot {:.1f} KiB (encoder part {:.1f})\n",
      options.model.string(), shape.num_layers, shape.num_layers - shape.encoder_layers,
      static_cast<double>(shape.page_bytes()) / 1024,
      static_cast<double>(2 * shape.snapshot_unit_bytes()) / 1024,
      static_cast<double>(shape.snapshot_unit_bytes()) / 1024);
  const int64_t from = smallest > 0 ? smallest : 1024;
  if (part.empty() || part == "skip") measure_skip(options, from, largest);
  if (part.empty() || part == "hits") measure_hits(options, from, largest);
  if (part.empty() || part == "bounded") {
    measure_bounded(options, smallest > 0 ? smallest : 256, std::min<int64_t>(largest, 2048));
  }
  return 0;
}

}  // namespace
}  // namespace deepinfer

int main(int argc, char** argv) {
  return deepinfer::run(argc, argv);
}
