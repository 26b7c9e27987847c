#include "apps/json_input.h"

#include <array>
#include <cmath>
#include <concepts>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/json.h"

namespace deepinfer::apps {
namespace {

/// Enough of a text from outside to recognise it by.
std::string clip(const std::string& text) {
  constexpr size_t kMaxShown = 60;
  return text.size() > kMaxShown ? text.substr(0, kMaxShown) + "…" : text;
}

[[noreturn]] void fail_type(std::string_view key, const Json& value, std::string_view wanted) {
  fail(ErrorCode::kInvalidArgument, "\"{}\" is {}, not {}", key,
       clip(value.dump(-1, ' ', true, Json::error_handler_t::replace)), wanted);
}

// assign(target, value, key): one overload per type that a sampling field has.

template <std::integral T>
void assign(T& target, const Json& value, std::string_view key) {
  constexpr T kMin = std::numeric_limits<T>::min();
  constexpr T kMax = std::numeric_limits<T>::max();
  const bool fits = value.is_number_unsigned()
                        ? std::in_range<T>(value.get<uint64_t>())
                        : value.is_number_integer() && std::in_range<T>(value.get<int64_t>());
  if (!fits) fail_type(key, value, fmt::format("an integer from {} to {}", kMin, kMax));
  target = value.is_number_unsigned() ? static_cast<T>(value.get<uint64_t>())
                                      : static_cast<T>(value.get<int64_t>());
}

void assign(bool& target, const Json& value, std::string_view key) {
  if (!value.is_boolean()) fail_type(key, value, "true or false");
  target = value.get<bool>();
}

void assign(float& target, const Json& value, std::string_view key) {
  if (!value.is_number() || !std::isfinite(static_cast<float>(value.get<double>()))) {
    fail_type(key, value, "a number");
  }
  target = static_cast<float>(value.get<double>());
}

void assign(std::string& target, const Json& value, std::string_view key) {
  if (!value.is_string()) fail_type(key, value, "a string");
  target = value.get<std::string>();
}

/// A list, or where a single string is as good as a list of one, that string.
template <typename T>
void assign(std::vector<T>& target, const Json& value, std::string_view key) {
  target.clear();
  if constexpr (std::same_as<T, std::string>) {
    if (value.is_string()) {
      target.push_back(value.get<std::string>());
      return;
    }
  }
  if (!value.is_array()) fail_type(key, value, "a list");
  target.reserve(value.size());
  for (const Json& element : value) assign(target.emplace_back(), element, key);
}

/// logit_bias: {"token id": bias}.
void assign(std::vector<std::pair<int32_t, float>>& target, const Json& value,
            std::string_view key) {
  if (!value.is_object()) fail_type(key, value, "an object of token ids and numbers");
  target.clear();
  for (const auto& [token, bias] : value.items()) {
    const std::string name = fmt::format("{}.{}", key, clip(token));
    const Json id = Json::parse(token, nullptr, false);
    int32_t number = 0;
    assign(number, id.is_discarded() ? Json(token) : id, name);
    float amount = 0;
    assign(amount, bias, name);
    target.emplace_back(number, amount);
  }
}

template <typename T>
void assign(std::optional<T>& target, const Json& value, std::string_view key) {
  assign(target.emplace(), value, key);
}

using Assign = void (*)(SamplingParams&, const Json&, std::string_view);

template <auto kMember>
void assign_member(SamplingParams& params, const Json& value, std::string_view key) {
  assign(params.*kMember, value, key);
}

constexpr std::array<std::pair<std::string_view, Assign>, 15> kSamplingFields = {{
    {"max_tokens", assign_member<&SamplingParams::max_tokens>},
    {"min_tokens", assign_member<&SamplingParams::min_tokens>},
    {"temperature", assign_member<&SamplingParams::temperature>},
    {"top_p", assign_member<&SamplingParams::top_p>},
    {"top_k", assign_member<&SamplingParams::top_k>},
    {"min_p", assign_member<&SamplingParams::min_p>},
    {"repetition_penalty", assign_member<&SamplingParams::repetition_penalty>},
    {"frequency_penalty", assign_member<&SamplingParams::frequency_penalty>},
    {"presence_penalty", assign_member<&SamplingParams::presence_penalty>},
    {"seed", assign_member<&SamplingParams::seed>},
    {"stop", assign_member<&SamplingParams::stop>},
    {"stop_token_ids", assign_member<&SamplingParams::stop_token_ids>},
    {"ignore_eos", assign_member<&SamplingParams::ignore_eos>},
    {"logprobs", assign_member<&SamplingParams::logprobs>},
    {"logit_bias", assign_member<&SamplingParams::logit_bias>},
}};

bool assign_sampling_field(SamplingParams& params, const std::string& key, const Json& value) {
  for (const auto& [name, assign_field] : kSamplingFields) {
    if (name != key) continue;
    assign_field(params, value, key);
    return true;
  }
  return false;
}

/// Fields of the request that are not sampling parameters.
bool assign_request_field(Entry& entry, const std::string& key, const Json& value) {
  if (key == "priority") {
    assign(entry.priority, value, key);
  } else if (key == "cache_salt") {
    assign(entry.cache_salt, value, key);
  } else {
    return false;
  }
  return true;
}

void assign_id(Entry& entry, const Json& value) {
  if (!value.is_string() && !value.is_number_integer()) {
    fail_type("id", value, "a string or an integer");
  }
  entry.id_json = value.dump();
  entry.id_text = value.is_string() ? value.get<std::string>() : entry.id_json;
}

/// The field that holds the input; at most one of its kinds may be there.
bool assign_input(Entry& entry, const std::string& key, const Json& value, bool for_score) {
  const bool is_text = key == "prompt" || (for_score && key == "text");
  const bool is_messages = !for_score && key == "messages";
  if (!is_text && !is_messages && key != "tokens") return false;
  if (entry.text || entry.tokens || entry.messages_json) {
    fail(ErrorCode::kInvalidArgument, "\"{}\" comes on top of another input field", key);
  }
  if (is_text) {
    assign(entry.text, value, key);
  } else if (is_messages) {
    if (!value.is_array()) fail_type(key, value, "a list");
    entry.messages_json = value.dump();
  } else {
    assign(entry.tokens, value, key);
  }
  return true;
}

void parse_fields(Entry& entry, const Line& line, const std::string& where, bool for_score) {
  if (line.too_long) {
    fail(ErrorCode::kInvalidFile, "the line is longer than {} bytes", LineReader::kMaxLineBytes);
  }
  // parse_json names the source itself.
  const Json json = parse_json(line.text, where);
  if (!json.is_object()) fail_type("line", json, "an object");
  // The id first, so that the error of any other field is reported under it.
  if (const auto id = json.find("id"); id != json.end()) assign_id(entry, *id);
  for (const auto& [key, value] : json.items()) {
    if (key == "id" || assign_input(entry, key, value, for_score)) continue;
    if (!for_score && (assign_sampling_field(entry.sampling, key, value) ||
                       assign_request_field(entry, key, value))) {
      continue;
    }
    fail(ErrorCode::kInvalidArgument, "unknown field \"{}\"", clip(key));
  }
  if (!entry.text && !entry.tokens && !entry.messages_json) {
    fail(ErrorCode::kInvalidArgument, "there is no {}",
         for_score ? R"("text", "prompt" or "tokens")" : R"("prompt", "tokens" or "messages")");
  }
}

Entry parse_line(const Line& line, std::string_view source, const SamplingParams& defaults,
                 bool for_score) {
  Entry entry;
  entry.id_json = entry.id_text = std::to_string(line.number);
  entry.sampling = defaults;
  const std::string where = fmt::format("{} line {}", source, line.number);
  try {
    parse_fields(entry, line, where, for_score);
  } catch (const Error& error) {
    const std::string_view what = error.what();
    entry.error = what.starts_with(where) ? std::string(what) : fmt::format("{}: {}", where, what);
  }
  return entry;
}

}  // namespace

Entry parse_generate_line(const Line& line, std::string_view source,
                          const SamplingParams& defaults) {
  return parse_line(line, source, defaults, false);
}

Entry parse_score_line(const Line& line, std::string_view source) {
  return parse_line(line, source, {}, true);
}

std::vector<int32_t> parse_id_list(std::string_view json, std::string_view source) {
  const Json value = parse_json(json, source);
  std::vector<int32_t> ids;
  try {
    assign(ids, value, "tokens");
  } catch (const Error& error) {
    fail(ErrorCode::kInvalidFile, "{}: {}; a list of token ids is [1,2,3]", source, error.what());
  }
  return ids;
}

}  // namespace deepinfer::apps
