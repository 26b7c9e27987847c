#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace deepinfer::text {

/// A JSON value that keeps what Python's json module keeps: the order of keys and integers of any
/// length. Objects of any size parse in linear time.
struct JsonValue {
  enum class Kind : uint8_t { kNull, kBoolean, kNumber, kString, kArray, kObject };

  Kind kind = Kind::kNull;
  bool boolean = false;
  std::string text;               ///< kString: its UTF-8; kNumber: as written.
  std::vector<std::string> keys;  ///< kObject: names of `values`, no two equal.
  std::vector<JsonValue> values;  ///< kArray: the items; kObject: the members' values.

  bool is(Kind k) const { return kind == k; }
  /// The member `key` of an object, or null. Linear in the number of members.
  const JsonValue* find(std::string_view key) const;
  JsonValue* find(std::string_view key);
  /// Sets a member, in place if there is one of that name, else at the end. Linear.
  void set(std::string_view key, JsonValue value);
  /// Removes a member if there is one. Linear.
  void erase(std::string_view key);

  static JsonValue string(std::string value);
  static JsonValue object();
};

/// "null", "a string", "an object", …: for error messages.
const char* describe(JsonValue::Kind kind);

/// Parses one JSON text. Errors, each naming `source`: kInvalidFile when it is not valid JSON or
/// UTF-8, holds a lone surrogate or a number out of double's range, an object has a key twice, or
/// it nests deeper than `max_depth`.
JsonValue parse_json_value(std::string_view text, std::string_view source, int max_depth = 64);

/// json.dumps(value, ensure_ascii=False) of Python, to the byte: separators ", " and ": ", integers
/// as written, other numbers as repr(float) writes them.
std::string to_python_json(const JsonValue& value);
/// The same for one string, with its quotes.
std::string quote_json(std::string_view text);

}  // namespace deepinfer::text
