#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "deepinfer/engine.h"

namespace deepinfer::server {

using Clock = std::chrono::steady_clock;

/// Counts of values by size, for quantiles. Used by one thread.
template <size_t kBuckets>
struct Histogram {
  std::array<double, kBuckets> bounds;        ///< Ascending upper bounds.
  std::array<int64_t, kBuckets> counts = {};  ///< Values in (previous bound, bound].
  int64_t count = 0;
  double sum = 0;

  void add(double value, int64_t times = 1) {
    for (size_t i = 0; i < kBuckets; ++i) {
      if (value > bounds[i]) continue;
      counts[i] += times;
      break;
    }
    count += times;
    sum += value * static_cast<double>(times);
  }
};

/// What the server counts. Plain numbers: they belong to the thread that writes answers, which also
/// prints them.
struct Metrics {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t generation_tokens = 0;
  std::map<std::string, int64_t> finished = {};  ///< Choices by finish reason; "abort", "error".
  std::map<int, int64_t> responses = {};         ///< Answers by HTTP status.
  int64_t connections = 0;                       ///< Open now.
  // Seconds; the bounds are those of vLLM's dashboards.
  Histogram<19> time_to_first_token = {{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5,
                                        0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80}};
  Histogram<17> inter_token_latency = {{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15,
                                        0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5}};
  Histogram<18> end_to_end = {
      {0.1, 0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240}};
  // Tokens.
  Histogram<16> request_prompt_tokens = {
      {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 50000, 200000, 1000000}};
  Histogram<16> request_generation_tokens = {
      {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 50000, 200000, 1000000}};
};

/// The metrics in Prometheus' text format. Names begin with `prefix`, except deepinfer_kv_pages and
/// process_….
std::string metrics_text(const Metrics& metrics, const EngineStats& stats, std::string_view prefix,
                         std::string_view model);

/// Whether a prefix makes valid metric names.
bool is_metric_prefix(std::string_view prefix);

}  // namespace deepinfer::server
