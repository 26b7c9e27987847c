#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/json_value.h"

namespace deepinfer::server {

/// A value of a request's body with the name that errors give it. Every reader throws ApiError 400
/// with the field as `param` when the value is of another kind. Borrows the value.
class FieldValue {
 public:
  FieldValue(const text::JsonValue& json, std::string name) : json_(json), name_(std::move(name)) {}

  const text::JsonValue& json() const { return json_; }
  const std::string& name() const { return name_; }

  bool boolean() const;
  const std::string& string() const;
  /// An integer in [min, max]; 3.0 counts as 3.
  int64_t integer(int64_t min, int64_t max) const;
  /// An integer in [0, 2^64) or, as its two's complement, in [-2^63, 0).
  uint64_t seed() const;
  /// A number that a float holds.
  float number() const;
  const text::JsonValue& array() const;
  const text::JsonValue& object() const;
  /// Item `index` of a list.
  FieldValue item(size_t index) const;
  /// Member `index` of an object.
  FieldValue member(size_t index) const;
  /// A list of integers that fit an int32_t, or of strings.
  std::vector<int32_t> ids() const;
  std::vector<std::string> strings() const;

  /// Throws the ApiError "NAME is VALUE, expected EXPECTED".
  [[noreturn]] void fail(std::string_view expected) const;

 private:
  const text::JsonValue& json_;
  std::string name_;
};

}  // namespace deepinfer::server
