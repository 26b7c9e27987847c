#include <algorithm>
#include <chrono>
#include <random>
#include <string>
#include <vector>

#include "apps/bench_report.h"
#include "apps/cli.h"
#include "apps/commands.h"
#include "apps/engine_setup.h"
#include "apps/interruption.h"
#include "apps/output.h"
#include "base/error.h"

namespace deepinfer::apps {
namespace {

using Clock = std::chrono::steady_clock;

/// Prompts measured per length; their latencies give the percentiles.
constexpr int kPrompts = 3;

struct BenchFlags {
  EngineOptions engine;
  std::vector<int64_t> prompt_lengths = {128, 512};
  std::vector<int64_t> batch_sizes = {1, 4};
  int64_t new_tokens = 64;
  std::optional<std::string> json;
};

/// "128,512" as whole numbers of at least 1.
std::vector<int64_t> parse_sizes(std::string_view flag, std::string_view text) {
  std::vector<int64_t> sizes;
  for (const int32_t size : parse_token_ids(flag, text)) {
    if (size < 1) fail(ErrorCode::kInvalidArgument, "{}: {} is below 1", flag, size);
    sizes.push_back(size);
  }
  return sizes;
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// What was counted between two moments.
std::vector<OperationStats> difference(std::vector<OperationStats> after,
                                       const std::vector<OperationStats>& before) {
  for (size_t i = 0; i < after.size(); ++i) {
    after[i].calls -= before[i].calls;
    after[i].seconds -= before[i].seconds;
    after[i].bytes -= before[i].bytes;
    after[i].operations -= before[i].operations;
  }
  return after;
}

/// Refuses prompts that the engine would, before they are made.
void check_lengths(const BenchFlags& flags, int64_t max_model_len) {
  const int64_t longest = std::ranges::max(flags.prompt_lengths);
  if (flags.new_tokens > max_model_len || longest > max_model_len - flags.new_tokens) {
    fail(ErrorCode::kInvalidArgument,
         "--prompt-lengths: a prompt of {} tokens and --new-tokens {} do not fit in {} tokens "
         "(--max-model-len, --kv-tokens and the model)",
         longest, flags.new_tokens, max_model_len);
  }
}

class Bench {
 public:
  Bench(const BenchFlags& flags, Engine& engine, double load_seconds,
        const Interruption& interruption)
      : flags_(flags), engine_(engine), load_seconds_(load_seconds), interruption_(interruption) {}

  BenchReport run() {
    BenchReport report{.model = flags_.engine.model.string(),
                       .fingerprint = engine_.system_fingerprint(),
                       .load_seconds = load_seconds_,
                       .limits = engine_.measure_limits(),
                       .phases = {}};
    // Maps the weights and grows what is kept from step to step.
    prefill(std::ranges::max(flags_.prompt_lengths), 1);
    for (const int64_t length : flags_.prompt_lengths) {
      if (interruption_.requested()) break;
      report.phases.push_back(prefill(length, kPrompts));
    }
    for (const int64_t length : flags_.prompt_lengths) {
      for (const int64_t size : flags_.batch_sizes) {
        if (interruption_.requested()) break;
        report.phases.push_back(decode(length, size));
      }
    }
    return report;
  }

 private:
  OutputStream submit(int64_t prompt_length, int64_t new_tokens) {
    Request request;
    const auto last = static_cast<int32_t>(engine_.model_info().vocab_size - 1);
    std::uniform_int_distribution<int32_t> token(0, last);
    for (int64_t i = 0; i < prompt_length; ++i) request.prompt.push_back(token(random_));
    request.sampling.max_tokens = new_tokens;
    request.sampling.temperature = 0;
    request.sampling.ignore_eos = true;
    return engine_.submit(std::move(request));
  }

  /// Waits for the next tokens; false at the end. Errors: what ended the request.
  static bool wait(OutputStream& stream, int64_t& tokens) {
    const std::optional<OutputDelta> delta = stream.next();
    if (!delta) return false;
    if (delta->finish_reason == FinishReason::kError) {
      throw Error(delta->error_code, delta->error);
    }
    tokens += std::ssize(delta->tokens);
    return delta->finish_reason == FinishReason::kNone;
  }

  /// One prompt after the other, up to its first token.
  BenchPhase prefill(int64_t length, int prompts) {
    BenchPhase phase{.kind = "prefill",
                     .prompt_length = length,
                     .batch_size = 1,
                     .tokens_per_second = 0,
                     .latencies_s = {},
                     .operations = {}};
    const std::vector<OperationStats> before = engine_.operation_stats();
    for (int i = 0; i < prompts && !interruption_.requested(); ++i) {
      const auto start = Clock::now();
      OutputStream stream = submit(length, 1);
      int64_t tokens = 0;
      while (wait(stream, tokens)) {
      }
      phase.latencies_s.push_back(seconds_since(start));
    }
    std::ranges::sort(phase.latencies_s);
    const double median = percentile(phase.latencies_s, 0.5);
    phase.tokens_per_second = median > 0 ? static_cast<double>(length) / median : 0;
    phase.operations = difference(engine_.operation_stats(), before);
    return phase;
  }

  /// A batch from the moment when all its requests have their first token.
  BenchPhase decode(int64_t length, int64_t batch_size) {
    BenchPhase phase{.kind = "decode",
                     .prompt_length = length,
                     .batch_size = batch_size,
                     .tokens_per_second = 0,
                     .latencies_s = {},
                     .operations = {}};
    std::vector<OutputStream> streams;
    streams.reserve(static_cast<size_t>(batch_size));
    for (int64_t i = 0; i < batch_size; ++i) streams.push_back(submit(length, flags_.new_tokens));
    int64_t tokens = 0;
    for (OutputStream& stream : streams) wait(stream, tokens);

    // The engine does not wait for us: steps that it takes before it counts are in the time and the
    // tokens, and only missing in the table.
    const auto start = Clock::now();
    const std::vector<OperationStats> before = engine_.operation_stats();
    auto last = start;
    tokens = 0;
    // The requests run in step, so one look at each is one step of the engine.
    for (bool running = true; running && !interruption_.requested();) {
      running = false;
      for (OutputStream& stream : streams) running = wait(stream, tokens) || running;
      const auto now = Clock::now();
      if (running) phase.latencies_s.push_back(std::chrono::duration<double>(now - last).count());
      last = now;
    }
    phase.tokens_per_second =
        static_cast<double>(tokens) / std::chrono::duration<double>(last - start).count();
    std::ranges::sort(phase.latencies_s);
    phase.operations = difference(engine_.operation_stats(), before);
    return phase;
  }

  const BenchFlags& flags_;
  Engine& engine_;
  double load_seconds_;
  const Interruption& interruption_;
  std::mt19937_64 random_{1};  // other prompts every time, so that no cache knows them
};

BenchFlags parse(std::span<const std::string> arguments, bool& goes_on) {
  BenchFlags flags;
  Flags parser("bench", "Measures prefill and decode, and what each operation costs.");
  add_engine_flags(parser, flags.engine);
  parser.value(
      "--prompt-lengths", "N,…",
      [&](const std::string& text) {
        flags.prompt_lengths = parse_sizes("--prompt-lengths", text);
      },
      "Tokens of the prompts (default 128,512)");
  parser.value(
      "--batch-sizes", "N,…",
      [&](const std::string& text) { flags.batch_sizes = parse_sizes("--batch-sizes", text); },
      "Requests that generate at once (default 1,4)");
  parser.integer("--new-tokens", &flags.new_tokens, 2,
                 "Tokens that each request generates (default 64)");
  parser.text("--json", "FILE", &flags.json, "Also write everything as one JSON object");
  goes_on = parser.parse(arguments);
  return flags;
}

}  // namespace

int bench(std::span<const std::string> arguments) {
  bool goes_on = false;
  BenchFlags flags = parse(arguments, goes_on);
  if (!goes_on) return 0;
  const int64_t largest = std::ranges::max(flags.batch_sizes);
  flags.engine.max_batch = std::max(flags.engine.max_batch, largest);
  flags.engine.profile = true;
  std::optional<Output> json;
  if (flags.json) json.emplace(flags.json);
  const Interruption interruption;
  const auto start = Clock::now();
  const std::unique_ptr<Engine> engine = Engine::create(flags.engine);
  const double load_seconds = seconds_since(start);
  check_lengths(flags, engine->model_info().max_model_len);
  const BenchReport report = Bench(flags, *engine, load_seconds, interruption).run();
  Output().write(to_text(report));
  if (json) {
    json->truncate();
    json->write(to_json(report));
  }
  return interruption.requested() ? interruption.exit_code() : 0;
}

}  // namespace deepinfer::apps
