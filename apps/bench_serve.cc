#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "apps/cli.h"
#include "apps/commands.h"
#include "apps/interruption.h"
#include "apps/load_report.h"
#include "apps/load_workload.h"
#include "apps/output.h"
#include "base/error.h"

namespace deepinfer::apps {
namespace {

void add_range_flag(Flags& flags, const std::string& name, Range& range, const std::string& help) {
  flags.value(
      name, "N or A:B",
      [&range, name](const std::string& text) { range = parse_range(name, text); },
      fmt::format("{} (default {})", help, range.low));
}

void add_goal_flag(Flags& flags, const std::string& name, double& goal, const std::string& help) {
  flags.value(
      name, "MS", [&goal, name](const std::string& text) { goal = parse_number(name, text); },
      help);
}

/// "1,2,4" as numbers of at least 1.
std::vector<int64_t> parse_list(const std::string& flag, const std::string& text) {
  std::vector<int64_t> values;
  for (const int32_t value : parse_token_ids(flag, text)) {
    if (value < 1) fail(ErrorCode::kInvalidArgument, "{}: 0 is not a number of at least 1", flag);
    values.push_back(value);
  }
  return values;
}

/// One point of a sweep.
LoadReport measure(const Target& target, const Workload& workload, int64_t users,
                   const Interruption& interruption) {
  server::LoadOptions options = load_options(target, workload.api);
  options.concurrency = users;
  const std::vector<server::LoadResult> results = run_load(
      options, make_requests(workload), [&interruption] { return interruption.requested(); });
  LoadReport report = make_report(results, {});
  if (report.failed == report.requests) {
    fail(ErrorCode::kIo, "{}: no request succeeded: {}", target.url, report.first_error);
  }
  return report;
}

/// "5", or "5 to 9".
std::string to_text(const Range& range) {
  return range.low == range.high ? std::to_string(range.low)
                                 : fmt::format("{} to {}", range.low, range.high);
}

void write_file(const std::filesystem::path& path, const std::string& text) {
  Output output(path.string());
  output.truncate();
  output.write(text);
}

/// Decode: the throughput of all users against the speed that one of them sees.
void sweep_decode(const Target& target, Workload workload, const std::vector<int64_t>& users,
                  const std::filesystem::path& folder, Output& log,
                  const Interruption& interruption) {
  std::string csv =
      "users,tokens_per_s,tokens_per_s_per_user,first_token_ms_p50,between_tokens_ms_p50,"
      "between_tokens_ms_p99,failed\n";
  Series series{.name = "", .points = {}};  // the only one needs no name
  for (const int64_t count : users) {
    workload.requests = std::max<int64_t>(2 * count, 4);
    const LoadReport report = measure(target, workload, count, interruption);
    if (interruption.requested()) return;
    const double per_user = report.gap.mean > 0 ? 1e3 / report.gap.mean : 0;
    csv += fmt::format("{},{:.2f},{:.2f},{:.2f},{:.3f},{:.3f},{}\n", count, report.tokens_per_s(),
                       per_user, report.first.p50, report.gap.p50, report.gap.p99, report.failed);
    series.points.push_back({per_user, report.tokens_per_s(), std::to_string(count)});
    log.write(fmt::format("decode, {} users: {:.1f} tokens/s, {:.1f} per user\n", count,
                          report.tokens_per_s(), per_user));
  }
  write_file(folder / "decode.csv", csv);
  write_file(
      folder / "decode.svg",
      to_svg({.title = "Decode throughput against per-user speed",
              .subtitle = fmt::format("{}; prompts of {} tokens, answers of {}; at each point: "
                                      "requests at once",
                                      target.url, to_text(workload.input_tokens),
                                      to_text(workload.output_tokens)),
              .x = "tokens per second of one user",
              .y = "tokens per second of all users"},
             {&series, 1}));
}

/// Prefill: tokens per second against the time to the first token, per prompt length.
void sweep_prefill(const Target& target, Workload workload, const std::vector<int64_t>& lengths,
                   const std::vector<int64_t>& users, const std::filesystem::path& folder,
                   Output& log, const Interruption& interruption) {
  std::string csv =
      "prompt_tokens,users,prompt_tokens_per_s,first_token_ms_p50,first_token_ms_p99,failed\n";
  std::vector<Series> all;
  workload.output_tokens = {1, 1};
  for (const int64_t length : lengths) {
    workload.input_tokens = {length, length};
    Series series{.name = fmt::format("{} tokens", length), .points = {}};
    for (const int64_t count : users) {
      workload.requests = std::max<int64_t>(2 * count, 4);
      ++workload.seed;  // prompts that no cache holds
      const LoadReport report = measure(target, workload, count, interruption);
      if (interruption.requested()) return;
      csv += fmt::format("{},{},{:.2f},{:.2f},{:.2f},{}\n", length, count,
                         report.prompt_tokens_per_s(), report.first.p50, report.first.p99,
                         report.failed);
      series.points.push_back(
          {report.first.p50, report.prompt_tokens_per_s(), std::to_string(count)});
      log.write(
          fmt::format("prefill, {} tokens, {} users: {:.0f} tokens/s, first after {:.1f} ms\n",
                      length, count, report.prompt_tokens_per_s(), report.first.p50));
    }
    all.push_back(std::move(series));
  }
  write_file(folder / "prefill.csv", csv);
  write_file(
      folder / "prefill.svg",
      to_svg({.title = "Prefill throughput against latency",
              .subtitle = fmt::format("{}; a line per prompt length; at each point: requests "
                                      "at once",
                                      target.url),
              .x = "milliseconds to the first token (median)",
              .y = "prompt tokens per second of all users"},
             all));
}

}  // namespace

int bench_serve(std::span<const std::string> arguments) {
  Flags parser("bench serve",
               "Sends requests to a running server and reports latencies, throughput and goodput.");
  Target target;
  Workload workload;
  Goals goals;
  int64_t concurrency = 0;
  bool json = false;
  add_target_flags(parser, target);
  parser.text("--api", "completions|chat", &workload.api, "Route (default completions)");
  parser.integer("--requests", &workload.requests, 1, "Requests in all (default 64)", 1 << 24);
  parser.integer("--concurrency", &concurrency, 1,
                 "Most requests at once (default 8, with --rate no limit)", 65536);
  parser.value(
      "--rate", "R",
      [&workload](const std::string& text) {
        workload.rate = parse_number("--rate", text);
        if (workload.rate <= 0) {
          fail(ErrorCode::kInvalidArgument, "--rate is {}, expected more than 0", text);
        }
      },
      "Requests per second, at random times");
  add_range_flag(parser, "--input-len", workload.input_tokens, "Tokens of a prompt");
  add_range_flag(parser, "--output-len", workload.output_tokens, "Tokens of an answer");
  parser.integer("--shared-prefix", &workload.shared_tokens, 0,
                 "Tokens that prompts have in common (default 0)", 1 << 24);
  parser.integer("--prefixes", &workload.num_prefixes, 1, "Different such beginnings (default 1)",
                 65536);
  parser.integer("--vocab-size", &workload.vocab_size, 101,
                 "Random prompts hold token ids from 100 up to this (default 1000)", 1 << 30);
  parser.value(
      "--seed", "N",
      [&workload](const std::string& text) { workload.seed = parse_unsigned("--seed", text); },
      "The same seed, the same requests (default 1)");
  parser.text("--dataset", "FILE", &workload.dataset,
              "JSON lines with prompt, tokens or messages, and max_tokens, instead of random ones");
  add_goal_flag(parser, "--goal-first", goals.first_ms, "Goodput: time to the first token");
  add_goal_flag(parser, "--goal-between", goals.gap_ms, "Goodput: mean time between tokens");
  add_goal_flag(parser, "--goal-end", goals.end_ms, "Goodput: time to the end");
  parser.toggle("--json", &json, "Print one JSON object instead of the table");
  if (!parser.parse(arguments)) return 0;

  const Interruption interruption;
  server::LoadOptions options = load_options(target, workload.api);
  options.concurrency = concurrency > 0 ? concurrency : workload.rate > 0 ? 65536 : 8;
  const std::vector<server::LoadRequest> requests = make_requests(workload);
  const std::vector<server::LoadResult> results =
      run_load(options, requests, [&interruption] { return interruption.requested(); });
  if (interruption.requested()) return interruption.exit_code();
  const LoadReport report = make_report(results, goals);
  if (report.failed == report.requests) {
    fail(ErrorCode::kIo, "{}: no request succeeded: {}", target.url, report.first_error);
  }
  Output().write(json ? to_json_line(report) : to_text(report));
  return 0;
}

int bench_sweep(std::span<const std::string> arguments) {
  Flags parser("bench sweep",
               "Measures a running server at several loads and draws the two pictures that engines "
               "are judged by,\nas SVG and CSV: prefill throughput against latency, decode "
               "throughput against the speed of a user.");
  Target target;
  Workload workload;
  std::vector<int64_t> users = {1, 2, 4, 8};
  std::vector<int64_t> lengths = {128, 512};
  std::string folder;
  add_target_flags(parser, target);
  parser.text("--output", "DIR", &folder, "Folder of the four files; made if it is missing");
  parser.require("--output");
  parser.value(
      "--users", "1,2,4",
      [&users](const std::string& text) { users = parse_list("--users", text); },
      "Requests at once (default 1,2,4,8)");
  parser.value(
      "--prefill-lens", "128,512",
      [&lengths](const std::string& text) { lengths = parse_list("--prefill-lens", text); },
      "Prompt tokens of the prefill picture (default 128,512)");
  add_range_flag(parser, "--input-len", workload.input_tokens,
                 "Prompt tokens of the decode picture");
  add_range_flag(parser, "--output-len", workload.output_tokens, "Tokens of an answer");
  parser.integer("--vocab-size", &workload.vocab_size, 101,
                 "Prompts hold token ids from 100 up to this (default 1000)", 1 << 30);
  if (!parser.parse(arguments)) return 0;

  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) fail(ErrorCode::kIo, "--output {}: {}", folder, error.message());
  const Interruption interruption;
  Output log;
  sweep_decode(target, workload, users, folder, log, interruption);
  sweep_prefill(target, workload, lengths, users, folder, log, interruption);
  return interruption.requested() ? interruption.exit_code() : 0;
}

}  // namespace deepinfer::apps
