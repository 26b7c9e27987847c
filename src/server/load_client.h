#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace deepinfer::server {

/// A request of a load test.
struct LoadRequest {
  std::string body;    ///< JSON with "stream" and "stream_options.include_usage".
  double start_s = 0;  ///< Not sent earlier than so long after the test's beginning.
};

/// What became of it. Times are seconds.
struct LoadResult {
  bool ok = false;
  std::string error = {};           ///< Of a failed one: what happened.
  double start_s = 0;               ///< After the test's beginning; sent at once.
  double first_s = 0;               ///< From there to the first token.
  double end_s = 0;                 ///< From there to the last byte.
  std::vector<double> gaps_s = {};  ///< Between the arrivals of tokens.
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t completion_tokens = 0;
};

struct LoadOptions {
  std::string host = "127.0.0.1";
  std::string port = "8000";
  std::string path = "/v1/completions";
  std::string api_key = {};
  int64_t concurrency = 1;  ///< Most requests at once.
  double timeout_s = 600;   ///< Of the whole test, after the last request was sent.
};

/// Sends requests in order, each on a connection of its own, and reads their streams, all on the
/// calling thread. `stop` is asked now and then whether to give up. Errors: kNotFound (no such
/// host), kResourceExhausted (descriptors).
std::vector<LoadResult> run_load(const LoadOptions& options,
                                 const std::vector<LoadRequest>& requests,
                                 const std::function<bool()>& stop);

}  // namespace deepinfer::server
