#include "server/field_value.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <limits>

#include "deepinfer/tokenizer.h"
#include "server/api_error.h"

namespace deepinfer::server {
namespace {

using Kind = text::JsonValue::Kind;

/// Enough of a value to recognise it by: containers by their kind alone.
std::string shown(const text::JsonValue& json) {
  constexpr size_t kMaxShown = 60;
  switch (json.kind) {
    case Kind::kArray:
    case Kind::kObject:
      return fmt::format("{} of {}", describe(json.kind), json.values.size());
    case Kind::kBoolean:
      return json.boolean ? "true" : "false";
    case Kind::kNull:
      return "null";
    case Kind::kNumber:
      return json.text.size() > kMaxShown ? json.text.substr(0, kMaxShown) + "…" : json.text;
    case Kind::kString:
      break;
  }
  const bool cut = json.text.size() > kMaxShown;
  // The cut may be inside a character.
  return text::quote_json(replace_invalid_utf8(json.text.substr(0, kMaxShown))) + (cut ? "…" : "");
}

template <typename T>
bool parse_whole(const std::string& text, T& value) {
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && at == end;
}

}  // namespace

void FieldValue::fail(std::string_view expected) const {
  throw ApiError(400, fmt::format("{} is {}, expected {}", name_, shown(json_), expected), name_);
}

bool FieldValue::boolean() const {
  if (!json_.is(Kind::kBoolean)) fail("true or false");
  return json_.boolean;
}

const std::string& FieldValue::string() const {
  if (!json_.is(Kind::kString)) fail("a string");
  return json_.text;
}

int64_t FieldValue::integer(int64_t min, int64_t max) const {
  int64_t value = 0;
  double real = 0;
  bool whole = json_.is(Kind::kNumber) && parse_whole(json_.text, value);
  if (!whole && json_.is(Kind::kNumber) && parse_whole(json_.text, real)) {
    // 2^53: where doubles stop to tell integers apart.
    whole = std::trunc(real) == real && std::abs(real) <= 9007199254740992.0;
    if (whole) value = static_cast<int64_t>(real);
  }
  if (!whole || value < min || value > max) {
    const bool bounded = max != std::numeric_limits<int64_t>::max();
    fail(bounded ? fmt::format("an integer from {} to {}", min, max)
                 : fmt::format("an integer of at least {}", min));
  }
  return value;
}

uint64_t FieldValue::seed() const {
  uint64_t value = 0;
  int64_t negative = 0;
  if (json_.is(Kind::kNumber)) {
    if (parse_whole(json_.text, value)) return value;
    if (parse_whole(json_.text, negative)) return static_cast<uint64_t>(negative);
  }
  fail("an integer from -2^63 to 2^64 - 1");
}

float FieldValue::number() const {
  double value = 0;
  const bool read = json_.is(Kind::kNumber) && parse_whole(json_.text, value);
  const auto narrow = static_cast<float>(value);
  if (!read || !std::isfinite(narrow)) fail("a number");
  return narrow;
}

const text::JsonValue& FieldValue::array() const {
  if (!json_.is(Kind::kArray)) fail("a list");
  return json_;
}

const text::JsonValue& FieldValue::object() const {
  if (!json_.is(Kind::kObject)) fail("an object");
  return json_;
}

FieldValue FieldValue::item(size_t index) const {
  return {array().values[index], fmt::format("{}[{}]", name_, index)};
}

FieldValue FieldValue::member(size_t index) const {
  return {object().values[index], fmt::format("{}.{}", name_, object().keys[index].substr(0, 100))};
}

std::vector<int32_t> FieldValue::ids() const {
  constexpr int64_t kMin = std::numeric_limits<int32_t>::min();
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
  std::vector<int32_t> ids;
  ids.reserve(array().values.size());
  for (size_t i = 0; i < json_.values.size(); ++i) {
    // Names are made for errors only: a prompt may have a million ids.
    int32_t id = 0;
    const text::JsonValue& value = json_.values[i];
    if (value.is(Kind::kNumber) && parse_whole(value.text, id)) {
      ids.push_back(id);
    } else {
      ids.push_back(static_cast<int32_t>(item(i).integer(kMin, kMax)));
    }
  }
  return ids;
}

std::vector<std::string> FieldValue::strings() const {
  std::vector<std::string> strings;
  strings.reserve(array().values.size());
  for (size_t i = 0; i < json_.values.size(); ++i) strings.push_back(item(i).string());
  return strings;
}

}  // namespace deepinfer::server
