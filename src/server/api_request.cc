#include "server/api_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "server/api_error.h"
#include "server/fields.h"

namespace deepinfer::server {
namespace {

using text::JsonValue;
using Kind = JsonValue::Kind;

void check_range(const char* field, int64_t value, int64_t low, int64_t high) {
  if (value < low || value > high) {
    fail(ErrorCode::kInvalidArgument, "{} is {}, expected {} to {}", field, value, low, high);
  }
}

/// An upper bound of the number of JSON values in a text: what parsing it allocates is bounded by
/// this, not by its length ("[[],[],[],…" needs thirty bytes of memory for one of text).
int64_t count_values(std::string_view body) {
  int64_t count = 1;
  bool in_string = false;
  for (size_t i = 0; i < body.size(); ++i) {
    const char c = body[i];
    if (in_string) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_string = false;
      }
    } else if (c == '"') {
      in_string = true;
    } else if (c == ',' || c == '[' || c == '{') {
      ++count;
    }
  }
  return count;
}

JsonValue parse_body(std::string_view body, const RequestLimits& limits) {
  constexpr size_t kAlwaysFine = size_t{1} << 16;  // bytes, and so values at most
  if (body.size() > kAlwaysFine && count_values(body) > limits.max_json_values) {
    throw ApiError(400,
                   fmt::format("the body has more than {} JSON values", limits.max_json_values));
  }
  JsonValue root;
  try {
    root = text::parse_json_value(body, "the body", limits.max_json_depth);
  } catch (const Error& error) {
    throw ApiError(400, error.what());
  }
  if (!root.is(Kind::kObject)) {
    throw ApiError(400, fmt::format("the body is {}, expected a JSON object", describe(root.kind)));
  }
  return root;
}

/// Whether a value is one of those that a kFixed field accepts.
bool is_fixed_value(const JsonValue& value, std::string_view accepted) {
  constexpr std::string_view kBetween = " | ";
  const std::string text = to_python_json(value);
  while (true) {
    const size_t end = accepted.find(kBetween);
    if (accepted.substr(0, end) == text) return true;
    if (end == std::string_view::npos) return false;
    accepted.remove_prefix(end + kBetween.size());
  }
}

std::string because(const Field& field) {
  return field.note.empty() ? std::string() : fmt::format(": {}", field.note);
}

void read_field(const Field& field, const FieldValue& value, ApiRequest& request) {
  switch (field.support) {
    case Support::kYes:
      field.read(request, value);
      return;
    case Support::kFixed:
      if (!is_fixed_value(value.json(), field.fixed)) {
        value.fail(fmt::format("{}: no other value is supported{}", field.fixed,
                               field.note.empty() ? "" : fmt::format(" ({})", field.note)));
      }
      return;
    case Support::kNoEffect:
      return;
    case Support::kNo:
      throw ApiError(400, fmt::format("{} is not supported{}", field.name, because(field)),
                     std::string(field.name));
  }
}

/// The fields of a route by name.
const Field* find_field(Api api, std::string_view name) {
  const std::span<const Field> fields = fields_of(api);
  const auto found = std::ranges::find(fields, name, &Field::name);
  return found == fields.end() ? nullptr : &*found;
}

void require(bool present, const char* field, std::string_view what) {
  if (!present) throw ApiError(400, fmt::format("{} is missing: {}", field, what), field);
}

/// What holds between fields.
void check_together(const ApiRequest& request, const RequestLimits& limits) {
  const bool has_messages = !request.messages.values.empty();
  switch (request.api) {
    case Api::kChat:
      require(has_messages, "messages", "expected a list of messages");
      if (request.top_logprobs && !request.wants_logprobs) {
        throw ApiError(400, "top_logprobs needs logprobs to be true", "top_logprobs");
      }
      break;
    case Api::kResponses:
      require(has_messages, "input", "expected a text or a list of messages");
      break;
    case Api::kCompletions:
      require(!request.prompts.empty(), "prompt", "expected a text or token ids");
      if (request.echo && request.wants_logprobs) {
        throw ApiError(400,
                       "echo is not supported together with logprobs: deepinfer score "
                       "computes the log-probabilities of a text",
                       "echo");
      }
      if (request.suffix && request.echo) {
        throw ApiError(400, "echo is not supported together with suffix", "echo");
      }
      break;
    case Api::kTokenize:
      if (has_messages == !request.prompts.empty()) {
        throw ApiError(400, "expected either prompt or messages", "prompt");
      }
      break;
    case Api::kDetokenize:
      require(request.tokens.has_value(), "tokens", "expected a list of token ids");
      break;
  }
  if (request.has_stream_options && !request.stream) {
    throw ApiError(400, "stream_options is only allowed when stream is true", "stream_options");
  }
  const auto prompts = std::max<int64_t>(1, static_cast<int64_t>(request.prompts.size()));
  if (request.n > limits.max_choices / prompts) {
    throw ApiError(400,
                   fmt::format("n is {} for {} prompts, expected at most {} choices in all",
                               request.n, prompts, limits.max_choices),
                   request.n > 1 ? "n" : "prompt");
  }
  if (std::cmp_greater(request.tools.values.size(), limits.max_tools)) {
    throw ApiError(400,
                   fmt::format("tools has {} entries, expected at most {}",
                               request.tools.values.size(), limits.max_tools),
                   "tools");
  }
}

}  // namespace

void RequestLimits::validate() const {
  constexpr int64_t kMax = int64_t{1} << 40;
  check_range("max_body_bytes", max_body_bytes, 1024, kMax);
  check_range("max_json_values", max_json_values, 1, kMax);
  check_range("max_json_depth", max_json_depth, 4, 1000);
  check_range("max_choices", max_choices, 1, 65536);
  check_range("max_tools", max_tools, 1, 65536);
}

ApiRequest parse_request(Api api, std::string_view body, const RequestLimits& limits) {
  const JsonValue root = parse_body(body, limits);
  ApiRequest request;
  request.api = api;
  for (size_t i = 0; i < root.keys.size(); ++i) {
    const std::string& key = root.keys[i];
    const Field* field = find_field(api, key);
    if (field == nullptr) {
      const std::string shown = key.substr(0, 100);
      throw ApiError(400,
                     fmt::format("there is no field {} in a request to {}", text::quote_json(shown),
                                 path_of(api)),
                     shown);
    }
    if (root.values[i].is(Kind::kNull)) continue;
    read_field(*field, FieldValue(root.values[i], key), request);
  }
  check_together(request, limits);
  return request;
}

}  // namespace deepinfer::server
