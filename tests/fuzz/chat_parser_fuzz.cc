// Any bytes as a completion: the parser never throws, does not depend on cuts, emits valid UTF-8
// and arguments that are JSON.

#include <algorithm>
#include <string>
#include <string_view>

#include "deepinfer/chat.h"
#include "tests/fuzz/fuzz.h"
#include "text/json_value.h"

namespace {

using deepinfer::ChatDelta;
using deepinfer::ChatParser;

// Decides the types of parameters that do not say theirs.
constexpr const char* kTools =
    R"([{"function":{"name":"f","parameters":{"properties":{"a":{"type":"integer"}}}}}])";

struct Parsed {
  ChatDelta message;
  bool malformed = false;
  bool ended = false;

  friend bool operator==(const Parsed&, const Parsed&) = default;
};

Parsed parse(std::string_view text, size_t step, const deepinfer::ChatParserOptions& options) {
  ChatParser parser(options);
  ChatDelta message;
  for (size_t at = 0; at < text.size(); at += step) {
    ChatDelta delta = parser.push(text.substr(at, step));
    if (deepinfer::replace_invalid_utf8(delta.content) != delta.content) std::abort();
    if (deepinfer::replace_invalid_utf8(delta.reasoning) != delta.reasoning) std::abort();
    message.append(std::move(delta));
  }
  message.append(parser.finish(true));
  return {std::move(message), parser.malformed(), parser.ended()};
}

}  // namespace

/// The first byte chooses the options and the cuts.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const deepinfer::ChatParserOptions options = {.strict = (data[0] & 1) != 0,
                                                .in_reasoning = (data[0] & 2) != 0,
                                                .continues = (data[0] & 4) != 0,
                                                .stop = (data[0] & 8) != 0
                                                            ? std::vector<std::string>{"ab", "\n\n"}
                                                            : std::vector<std::string>{},
                                                .tools = kTools,
                                                .reasoning_holdback_bytes = 16};
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const Parsed whole = parse(text, std::max<size_t>(text.size(), 1), options);
  if (!(parse(text, 1 + (data[0] >> 4), options) == whole)) std::abort();
  for (const deepinfer::ChatToolCall& call : whole.message.tool_calls) {
    deepinfer::text::parse_json_value(call.arguments, "arguments");
  }
  return 0;
}
