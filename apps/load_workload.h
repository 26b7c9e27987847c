#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apps/cli.h"
#include "server/load_client.h"

namespace deepinfer::apps {

/// From … to, both included.
struct Range {
  int64_t low = 0;
  int64_t high = 0;
};

/// What the requests of a load test are.
struct Workload {
  std::string api = "completions";  ///< Or "chat".
  int64_t requests = 64;
  Range input_tokens = {128, 128};
  Range output_tokens = {64, 64};
  int64_t shared_tokens = 0;  ///< Of the input: one of `num_prefixes` beginnings.
  int64_t num_prefixes = 1;
  int64_t vocab_size = 1000;  ///< Random prompts hold ids from 100 up to this.
  double rate = 0;            ///< Requests per second, at random times; 0: at once.
  uint64_t seed = 1;
  std::optional<std::string> dataset = {};  ///< JSON lines instead of random prompts.
};

/// Where a load test goes.
struct Target {
  std::string url = "http://127.0.0.1:8000";
  std::optional<std::string> api_key_file = {};
};

/// Declares --url and --api-key-file.
void add_target_flags(Flags& flags, Target& target);
/// The client's options for a target. Errors: kInvalidArgument (url), those of the key file.
server::LoadOptions load_options(const Target& target, const std::string& api);

/// Reads "128" or "64:256". Errors: kInvalidArgument naming the flag.
Range parse_range(std::string_view flag, std::string_view text);

/// The requests of a workload: the same seed, the same requests. Lines of a dataset are {"prompt"
/// or "tokens" or "messages", "max_tokens"}; they repeat if there are fewer than requests. Errors:
/// kInvalidArgument; those of reading the dataset, naming the line.
std::vector<server::LoadRequest> make_requests(const Workload& workload);

}  // namespace deepinfer::apps
