#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "deepinfer/engine.h"

namespace deepinfer::apps {

/// One measured phase: prompts of one length, or a batch that generates.
struct BenchPhase {
  std::string kind;           ///< "prefill" or "decode".
  int64_t prompt_length = 0;  ///< Tokens per prompt.
  int64_t batch_size = 1;     ///< Requests at once.
  double tokens_per_second = 0;
  std::vector<double> latencies_s;         ///< Of prompts, or of steps; ascending.
  std::vector<OperationStats> operations;  ///< Of this phase alone.
};

/// What `deepinfer bench` measured.
struct BenchReport {
  std::string model;
  std::string fingerprint;
  double load_seconds = 0;  ///< From the folder to an engine that takes requests.
  MachineLimits limits;
  std::vector<BenchPhase> phases;
};

/// The value that a share `q` of the ascending values does not exceed.
double percentile(const std::vector<double>& ascending, double q);
/// The least time that the machine needs for what an operation did, over the time it took.
double fraction_of_bound(const OperationStats& operation, const MachineLimits& limits);

/// For people: a table per phase.
std::string to_text(const BenchReport& report);
/// One JSON object with everything.
std::string to_json(const BenchReport& report);

}  // namespace deepinfer::apps
