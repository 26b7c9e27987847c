#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "deepinfer/chat.h"
#include "text/json_value.h"

namespace deepinfer::text {

/// The types that a list of tools gives to their parameters.
class ToolSchemas {
 public:
  /// Errors: kInvalidFile (no JSON), kInvalidArgument (no list). Empty text: no tools.
  explicit ToolSchemas(const std::string& tools);
  /// The "type" of a parameter; nothing if it is not known or not one type.
  std::optional<std::string> type_of(const ChatToolCall& call, const std::string& parameter) const;

 private:
  JsonValue tools_;
};

/// Reads one block of tool calls symbol by symbol (spec/checkpoint.md §4.4 and §4.7), from its
/// first '<' on. Constant work per symbol, apart from the values' JSON.
class ToolCallReader {
 public:
  ToolCallReader(bool strict, const ToolSchemas& schemas) : strict_(strict), schemas_(schemas) {}

  enum class Step {
    kMore,
    kCall,    ///< A call is complete: take_call(). Check done() too.
    kDone,    ///< The block has ended.
    kBroken,  ///< This symbol cannot follow; raw() is no markup.
  };

  /// A new block; `before`: the newlines in front of it, which belong to raw().
  void begin(std::string_view before);
  Step put(char symbol);

  ChatToolCall take_call();
  bool done() const { return done_; }
  /// Whether a value of this block was not the JSON that it said it was.
  bool repaired() const { return repaired_; }
  /// All symbols since the last complete call, or since the beginning.
  const std::string& raw() const { return raw_; }
  /// The block lacks nothing but its end, of which raw() is a part.
  bool lacks_only_its_end() const;

 private:
  enum class State : uint8_t { kGap, kLess, kLessSlash, kTag, kValue, kValueLess, kValueLessSlash };
  enum class Level : uint8_t { kOutside, kCalls, kInvoke, kParameter };
  struct Tag;

  Step put_tag(char symbol);
  Step put_value(char symbol);
  bool put_gap(char symbol);
  std::optional<Tag> parse_tag() const;
  Step open_tag(const Tag& tag);
  Step close_tag(const Tag& tag);
  bool open_invoke(const Tag& tag);
  bool finish_parameter();
  Step finish_call();

  bool strict_;
  const ToolSchemas& schemas_;
  State state_ = State::kGap;
  Level level_ = Level::kOutside;
  bool closing_ = false;       // the tag is "</…>"
  bool quoted_ = false;        // inside "…" of a tag
  bool after_invoke_ = false;  // nothing but a gap since "<invoke …>"
  bool done_ = false;
  bool repaired_ = false;
  int num_calls_ = 0;
  std::string raw_;
  std::string gap_;
  std::string tag_;
  std::string value_;
  std::string parameter_;
  std::optional<bool> is_string_;  // what the parameter's tag says
  ChatToolCall call_;
  std::unordered_set<std::string> names_;  // of the call's parameters
};

}  // namespace deepinfer::text
