#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace deepinfer {

/// What a JSON text says, piece by piece, to whom builds a value of it.
class JsonEvents {
 public:
  virtual ~JsonEvents() = default;

  virtual void null() = 0;
  virtual void boolean(bool value) = 0;
  virtual void negative(int64_t value) = 0;       ///< An integer below zero, or "-0".
  virtual void not_negative(uint64_t value) = 0;  ///< Any other integer of 64 bits.
  /// Any other number: as a double, and as it is written.
  virtual void number(double value, const std::string& written) = 0;
  virtual void string(std::string value) = 0;
  virtual void begin_object() = 0;
  virtual void begin_array() = 0;
  virtual void end_container() = 0;
  /// The name of the member that comes next.
  virtual void member(std::string name) = 0;
};

/// Reads one JSON text from outside, in one pass and without recursion. Errors, each naming
/// `source`: kInvalidFile when it is not valid JSON or UTF-8, holds a number out of double's range,
/// an object has a key twice, or it nests deeper than `max_depth`.
void read_json(std::string_view text, std::string_view source, int max_depth, JsonEvents& events);

}  // namespace deepinfer
