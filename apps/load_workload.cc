#include "apps/load_workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>

#include "apps/json_input.h"
#include "apps/line_reader.h"
#include "apps/records.h"
#include "base/error.h"
#include "server/api_keys.h"

namespace deepinfer::apps {
namespace {

constexpr int64_t kMaxTokens = int64_t{1} << 24;
constexpr int64_t kFirstToken = 100;  // random prompts leave out the special tokens of small ids

/// Random numbers that are the same everywhere, unlike std::uniform_int_distribution's.
class Dice {
 public:
  explicit Dice(uint64_t seed) : engine_(seed) {}
  int64_t within(const Range& range) {
    const auto span = static_cast<uint64_t>(range.high - range.low) + 1;
    return range.low + static_cast<int64_t>(engine_() % span);
  }
  /// Exponentially distributed with mean 1: times between random events.
  double pause() { return -std::log1p(-static_cast<double>(engine_() >> 11) * 0x1.0p-53); }

 private:
  std::mt19937_64 engine_;
};

std::vector<int32_t> random_ids(Dice& dice, int64_t count, int64_t vocab_size) {
  std::vector<int32_t> ids;
  ids.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    ids.push_back(static_cast<int32_t>(dice.within({kFirstToken, vocab_size - 1})));
  }
  return ids;
}

/// The members that every request has besides its prompt.
std::string settings(int64_t max_tokens, bool ignore_eos) {
  return fmt::format(R"("max_tokens":{},"ignore_eos":{},"temperature":0,"stream":true,)"
                     R"("stream_options":{{"include_usage":true}})",
                     max_tokens, ignore_eos);
}

std::string chat_members(std::string_view text) {
  return fmt::format(R"("messages":[{{"role":"user","content":{}}}])", json_string(text));
}

/// Bodies from a file.
std::vector<std::string> read_dataset(const Workload& workload) {
  LineReader reader(*workload.dataset);
  std::vector<std::string> bodies;
  Line line;
  SamplingParams defaults;
  defaults.max_tokens = workload.output_tokens.high;
  while (std::cmp_less(bodies.size(), workload.requests) &&
         reader.next(line, /*wait=*/true, /*interrupt_fd=*/-1) == LineReader::Status::kLine) {
    const Entry entry = parse_generate_line(line, reader.name(), defaults);
    if (!entry.error.empty()) fail(ErrorCode::kInvalidFile, "{}", entry.error);
    if (workload.api == "chat" ? entry.tokens.has_value() : entry.messages_json.has_value()) {
      fail(ErrorCode::kInvalidFile, "{} line {}: {} do not fit --api {}", reader.name(),
           line.number, entry.tokens ? "tokens" : "messages", workload.api);
    }
    const std::string input = entry.messages_json      ? "\"messages\":" + *entry.messages_json
                              : entry.tokens           ? "\"prompt\":" + json_ids(*entry.tokens)
                              : workload.api == "chat" ? chat_members(*entry.text)
                                                       : "\"prompt\":" + json_string(*entry.text);
    bodies.push_back(fmt::format("{{{},{}}}", input, settings(entry.sampling.max_tokens, false)));
  }
  if (bodies.empty()) {
    fail(ErrorCode::kInvalidFile, "{}: there is no line, expected one per request", reader.name());
  }
  return bodies;
}

std::vector<std::string> random_bodies(const Workload& workload) {
  Dice dice(workload.seed);
  std::vector<std::vector<int32_t>> prefixes;
  prefixes.reserve(static_cast<size_t>(workload.num_prefixes));
  for (int64_t i = 0; i < workload.num_prefixes; ++i) {
    prefixes.push_back(random_ids(dice, workload.shared_tokens, workload.vocab_size));
  }
  std::vector<std::string> bodies;
  bodies.reserve(static_cast<size_t>(workload.requests));
  for (int64_t i = 0; i < workload.requests; ++i) {
    const int64_t length = dice.within(workload.input_tokens);
    std::vector<int32_t> ids = prefixes[static_cast<size_t>(i % workload.num_prefixes)];
    const int64_t own = length - std::min(length - 1, static_cast<int64_t>(ids.size()));
    ids.resize(static_cast<size_t>(length - own));
    const std::vector<int32_t> rest = random_ids(dice, own, workload.vocab_size);
    ids.insert(ids.end(), rest.begin(), rest.end());
    // A chat's random prompt is of words: about as many tokens.
    const std::string input = workload.api == "chat"
                                  ? chat_members(fmt::format("{}", fmt::join(ids, " ")))
                                  : fmt::format("\"prompt\":{}", json_ids(ids));
    bodies.push_back(
        fmt::format("{{{},{}}}", input, settings(dice.within(workload.output_tokens), true)));
  }
  return bodies;
}

}  // namespace

void add_target_flags(Flags& flags, Target& target) {
  flags.text("--url", "URL", &target.url, "Server to test (default http://127.0.0.1:8000)");
  flags.text("--api-key-file", "FILE", &target.api_key_file, "File whose first key is sent");
}

server::LoadOptions load_options(const Target& target, const std::string& api) {
  constexpr std::string_view kScheme = "http://";
  const std::string_view url = target.url;
  const size_t colon = url.rfind(':');
  const bool has_port = colon != std::string_view::npos && colon > kScheme.size();
  const std::string_view rest = url.substr(std::min(kScheme.size(), url.size()));
  if (!url.starts_with(kScheme) || rest.empty() || rest.find('/') != std::string_view::npos) {
    fail(ErrorCode::kInvalidArgument, "--url is \"{}\", expected http://HOST:PORT", url);
  }
  server::LoadOptions options;
  options.host = std::string(rest.substr(0, has_port ? colon - kScheme.size() : rest.size()));
  options.port = has_port ? std::string(url.substr(colon + 1)) : "80";
  options.path = api == "chat" ? "/v1/chat/completions" : "/v1/completions";
  if (target.api_key_file) options.api_key = server::ApiKeys::read(*target.api_key_file).first();
  return options;
}

Range parse_range(std::string_view flag, std::string_view text) {
  const size_t colon = text.find(':');
  Range range;
  range.low = parse_integer(flag, text.substr(0, colon), 1, kMaxTokens);
  range.high = colon == std::string_view::npos
                   ? range.low
                   : parse_integer(flag, text.substr(colon + 1), range.low, kMaxTokens);
  return range;
}

std::vector<server::LoadRequest> make_requests(const Workload& workload) {
  if (workload.api != "completions" && workload.api != "chat") {
    fail(ErrorCode::kInvalidArgument, "--api is \"{}\", expected completions or chat",
         workload.api);
  }
  const std::vector<std::string> bodies =
      workload.dataset ? read_dataset(workload) : random_bodies(workload);
  Dice dice(workload.seed + 1);
  std::vector<server::LoadRequest> requests;
  requests.reserve(static_cast<size_t>(workload.requests));
  double start = 0;
  for (int64_t i = 0; i < workload.requests; ++i) {
    requests.push_back({.body = bodies[static_cast<size_t>(i) % bodies.size()], .start_s = start});
    if (workload.rate > 0) start += dice.pause() / workload.rate;
  }
  return requests;
}

}  // namespace deepinfer::apps
