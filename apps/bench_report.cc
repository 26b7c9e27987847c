#include "apps/bench_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "apps/records.h"

namespace deepinfer::apps {
namespace {

double milliseconds(double seconds) {
  return 1e3 * seconds;
}

/// The operations that took time, the longest first.
std::vector<OperationStats> by_time(const BenchPhase& phase) {
  std::vector<OperationStats> operations;
  std::ranges::copy_if(phase.operations, std::back_inserter(operations),
                       [](const OperationStats& o) { return o.calls > 0; });
  std::ranges::stable_sort(operations, std::ranges::greater(), &OperationStats::seconds);
  return operations;
}

std::string table(const BenchPhase& phase, const MachineLimits& limits) {
  OperationStats sum{.name = "all"};
  double bound = 0;
  for (const OperationStats& o : phase.operations) {
    sum.calls += o.calls;
    sum.seconds += o.seconds;
    sum.bytes += o.bytes;
    sum.operations += o.operations;
    bound += o.seconds * fraction_of_bound(o, limits);
  }
  std::string text =
      fmt::format("  {:<18}{:>8}{:>12}{:>8}{:>10}{:>10}{:>10}{:>10}{:>10}\n", "operation", "calls",
                  "time/ms", "share", "MB", "GB/s", "Mop", "Gop/s", "of bound");
  const auto line = [&](const OperationStats& o, double fraction) {
    const double seconds = std::max(o.seconds, 1e-12);
    text += fmt::format(
        "  {:<18}{:>8}{:>12.3f}{:>7.1f}%{:>10.1f}{:>10.2f}{:>10.1f}{:>10.2f}{:>9.1f}%\n", o.name,
        o.calls, milliseconds(o.seconds), 100 * o.seconds / std::max(sum.seconds, 1e-12),
        o.bytes / 1e6, o.bytes / seconds / 1e9, o.operations / 1e6, o.operations / seconds / 1e9,
        100 * fraction);
  };
  for (const OperationStats& o : by_time(phase)) line(o, fraction_of_bound(o, limits));
  line(sum, bound / std::max(sum.seconds, 1e-12));
  return text;
}

/// `"name": {…}` of a phase's latencies.
std::string latencies_json(const std::vector<double>& ascending) {
  return fmt::format(R"({{"p50": {}, "p90": {}, "p99": {}, "max": {}}})",
                     percentile(ascending, 0.5), percentile(ascending, 0.9),
                     percentile(ascending, 0.99), percentile(ascending, 1));
}

std::string phase_json(const BenchPhase& phase, const MachineLimits& limits) {
  std::string text = fmt::format(
      R"({{"kind": "{}", "prompt_length": {}, "batch_size": {}, "tokens_per_second": {}, )"
      R"("latency_s": {}, "operations": [)",
      phase.kind, phase.prompt_length, phase.batch_size, phase.tokens_per_second,
      latencies_json(phase.latencies_s));
  const char* separator = "";
  for (const OperationStats& o : by_time(phase)) {
    text += fmt::format(
        R"({}{{"name": "{}", "calls": {}, "seconds": {}, "bytes": {}, "operations": {}, )"
        R"("fraction_of_bound": {}}})",
        separator, o.name, o.calls, o.seconds, o.bytes, o.operations, fraction_of_bound(o, limits));
    separator = ", ";
  }
  return text + "]}";
}

}  // namespace

double percentile(const std::vector<double>& ascending, double q) {
  if (ascending.empty()) return 0;
  const double rank = std::ceil(q * static_cast<double>(ascending.size()));
  return ascending[static_cast<size_t>(std::max(rank, 1.0)) - 1];
}

double fraction_of_bound(const OperationStats& operation, const MachineLimits& limits) {
  const auto least = [](double amount, double per_second) {
    return per_second > 0 ? amount / per_second : 0;
  };
  const double bound = std::max(least(operation.bytes, limits.read_bytes_per_second),
                                least(operation.operations, limits.operations_per_second));
  return operation.seconds > 0 ? bound / operation.seconds : 0;
}

std::string to_text(const BenchReport& report) {
  std::string text = fmt::format(
      "{} ({}), loaded in {:.3f} s\nlimits of this run: memory {:.2f} GB/s, fp32 multiply-adds "
      "{:.1f} Gop/s\n",
      report.model, report.fingerprint, report.load_seconds,
      report.limits.read_bytes_per_second / 1e9, report.limits.operations_per_second / 1e9);
  for (const BenchPhase& phase : report.phases) {
    const bool is_prefill = phase.kind == "prefill";
    text += fmt::format(
        "\n{}, prompts of {} tokens, batch {}: {:.1f} tokens/s; {} ms: p50 {:.3f}, p90 {:.3f}, "
        "p99 {:.3f}\n",
        phase.kind, phase.prompt_length, phase.batch_size, phase.tokens_per_second,
        is_prefill ? "prompt" : "step", milliseconds(percentile(phase.latencies_s, 0.5)),
        milliseconds(percentile(phase.latencies_s, 0.9)),
        milliseconds(percentile(phase.latencies_s, 0.99)));
    text += table(phase, report.limits);
  }
  return text;
}

std::string to_json(const BenchReport& report) {
  std::string text = fmt::format(
      R"({{"model": {}, "system_fingerprint": "{}", "load_seconds": {}, "limits": {{"read_bytes_per_second": {}, )"
      R"("operations_per_second": {}}}, "phases": [)",
      json_string(report.model), report.fingerprint, report.load_seconds,
      report.limits.read_bytes_per_second, report.limits.operations_per_second);
  const char* separator = "";
  for (const BenchPhase& phase : report.phases) {
    text += separator + phase_json(phase, report.limits);
    separator = ", ";
  }
  return text + "]}\n";
}

}  // namespace deepinfer::apps
