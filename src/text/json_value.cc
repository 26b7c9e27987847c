#include "text/json_value.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/error.h"
#include "base/json_events.h"

namespace deepinfer::text {
namespace {

/// Builds a JsonValue from parse events, so that no number passes through a double.
class Builder : public JsonEvents {
 public:
  JsonValue take() { return std::move(root_); }

  void null() override { place({}); }
  void boolean(bool value) override {
    JsonValue v;
    v.kind = JsonValue::Kind::kBoolean;
    v.boolean = value;
    place(std::move(v));
  }
  void negative(int64_t value) override { number(std::to_string(value)); }
  void not_negative(uint64_t value) override { number(std::to_string(value)); }
  void number(double, const std::string& written) override { number(written); }
  void string(std::string value) override { place(JsonValue::string(std::move(value))); }
  void begin_object() override { open(JsonValue::Kind::kObject); }
  void begin_array() override { open(JsonValue::Kind::kArray); }
  void end_container() override { open_.pop_back(); }
  void member(std::string name) override { open_.back()->keys.push_back(std::move(name)); }

 private:
  void open(JsonValue::Kind kind) {
    JsonValue v;
    v.kind = kind;
    // The pointer stays valid: the parent gets no further value before this one is closed.
    open_.push_back(&place(std::move(v)));
  }

  void number(std::string written) {
    JsonValue v;
    v.kind = JsonValue::Kind::kNumber;
    v.text = std::move(written);
    place(std::move(v));
  }

  JsonValue& place(JsonValue value) {
    if (open_.empty()) return root_ = std::move(value);
    return open_.back()->values.emplace_back(std::move(value));
  }

  JsonValue root_;
  std::vector<JsonValue*> open_;
};

void append_quoted(std::string_view text, std::string& out) {
  out.push_back('"');
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
        } else {
          out.push_back(c);
        }
    }
  }
  out.push_back('"');
}

void append_number(const std::string& written, std::string& out) {
  if (written.find_first_of(".eE") == std::string::npos) {
    out += written;
    return;
  }
  double value = 0;
  std::from_chars(written.data(), written.data() + written.size(), value);
  // fmt's shortest form switches to exponents where repr() does, but leaves ".0" away.
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  out += text;
}

void append_json(const JsonValue& value, std::string& out) {
  switch (value.kind) {
    case JsonValue::Kind::kNull:
      out += "null";
      return;
    case JsonValue::Kind::kBoolean:
      out += value.boolean ? "true" : "false";
      return;
    case JsonValue::Kind::kNumber:
      append_number(value.text, out);
      return;
    case JsonValue::Kind::kString:
      append_quoted(value.text, out);
      return;
    case JsonValue::Kind::kArray:
    case JsonValue::Kind::kObject:
      break;
  }
  const bool object = value.kind == JsonValue::Kind::kObject;
  out.push_back(object ? '{' : '[');
  for (size_t i = 0; i < value.values.size(); ++i) {
    if (i > 0) out += ", ";
    if (object) {
      append_quoted(value.keys[i], out);
      out += ": ";
    }
    append_json(value.values[i], out);
  }
  out.push_back(object ? '}' : ']');
}

}  // namespace

const JsonValue* JsonValue::find(std::string_view key) const {
  const auto found = std::find(keys.begin(), keys.end(), key);
  return found == keys.end() ? nullptr : &values[static_cast<size_t>(found - keys.begin())];
}

JsonValue* JsonValue::find(std::string_view key) {
  return const_cast<JsonValue*>(std::as_const(*this).find(key));
}

void JsonValue::set(std::string_view key, JsonValue value) {
  if (JsonValue* member = find(key)) {
    *member = std::move(value);
  } else {
    keys.emplace_back(key);
    values.push_back(std::move(value));
  }
}

void JsonValue::erase(std::string_view key) {
  const auto found = std::find(keys.begin(), keys.end(), key);
  if (found == keys.end()) return;
  values.erase(values.begin() + (found - keys.begin()));
  keys.erase(found);
}

JsonValue JsonValue::string(std::string value) {
  JsonValue v;
  v.kind = Kind::kString;
  v.text = std::move(value);
  return v;
}

JsonValue JsonValue::object() {
  JsonValue v;
  v.kind = Kind::kObject;
  return v;
}

const char* describe(JsonValue::Kind kind) {
  switch (kind) {
    case JsonValue::Kind::kNull:
      return "null";
    case JsonValue::Kind::kBoolean:
      return "a boolean";
    case JsonValue::Kind::kNumber:
      return "a number";
    case JsonValue::Kind::kString:
      return "a string";
    case JsonValue::Kind::kArray:
      return "a list";
    case JsonValue::Kind::kObject:
      return "an object";
  }
  return "?";
}

JsonValue parse_json_value(std::string_view text, std::string_view source, int max_depth) {
  // nlohmann skips it in front of a text, but then it is no JSON that could be passed on.
  if (text.starts_with("\xEF\xBB\xBF")) {
    fail(ErrorCode::kInvalidFile, "{}: not valid JSON at byte 1: a byte order mark", source);
  }
  Builder builder;
  read_json(text, source, max_depth, builder);
  return builder.take();
}

std::string to_python_json(const JsonValue& value) {
  std::string out;
  append_json(value, out);
  return out;
}

std::string quote_json(std::string_view text) {
  std::string out;
  append_quoted(text, out);
  return out;
}

}  // namespace deepinfer::text
