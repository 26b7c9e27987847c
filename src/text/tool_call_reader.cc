#include "text/tool_call_reader.h"

#include <algorithm>

#include "base/error.h"
#include "text/completion_marks.h"

namespace deepinfer::text {
namespace {

// A longer tag is text: it bounds what is held back before that is known.
constexpr size_t kMaxTagBytes = 4096;
// One level less than a call's arguments may have when they come back in a history.
constexpr int kMaxValueDepth = 63;

bool is_space(char c) {
  return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

bool is_json(const std::string& text) {
  try {
    parse_json_value(text, "value", kMaxValueDepth);
    return true;
  } catch (const Error&) {
    return false;
  }
}

bool is_block_name(std::string_view name) {
  return name == "calls" || name == "tool_calls";
}

}  // namespace

ToolSchemas::ToolSchemas(const std::string& tools) {
  if (tools.empty()) return;
  tools_ = parse_json_value(tools, "tools");
  if (!tools_.is(JsonValue::Kind::kArray)) {
    fail(ErrorCode::kInvalidArgument, "tools is {}, expected a list", describe(tools_.kind));
  }
}

std::optional<std::string> ToolSchemas::type_of(const ChatToolCall& call,
                                                const std::string& parameter) const {
  for (const JsonValue& tool : tools_.values) {
    const JsonValue* at = tool.find("function");
    const JsonValue* name = at == nullptr ? nullptr : at->find("name");
    if (name == nullptr ||
        (name->text != call.name && name->text != call.name_space + "::" + call.name)) {
      continue;
    }
    for (const std::string_view key :
         {std::string_view("parameters"), std::string_view("properties"),
          std::string_view(parameter), std::string_view("type")}) {
      if (at != nullptr) at = at->find(key);
    }
    if (at != nullptr && at->is(JsonValue::Kind::kString)) return at->text;
  }
  return std::nullopt;
}

struct ToolCallReader::Tag {
  std::string_view name;
  std::optional<std::string_view> name_attribute;
  std::optional<std::string_view> string_attribute;
};

void ToolCallReader::begin(std::string_view before) {
  state_ = State::kGap;
  level_ = Level::kOutside;
  closing_ = quoted_ = after_invoke_ = done_ = repaired_ = false;
  num_calls_ = 0;
  raw_ = before;
  gap_.clear();
}

ToolCallReader::Step ToolCallReader::put(char symbol) {
  raw_.push_back(symbol);
  switch (state_) {
    case State::kGap:
      if (symbol == '<') {
        state_ = State::kLess;
        return Step::kMore;
      }
      return put_gap(symbol) ? Step::kMore : Step::kBroken;
    case State::kLess:
      closing_ = symbol == '/';
      if (symbol != kMarkDsml && symbol != '/') return Step::kBroken;
      state_ = closing_ ? State::kLessSlash : State::kTag;
      tag_.clear();
      return Step::kMore;
    case State::kLessSlash:
      if (symbol != kMarkDsml) return Step::kBroken;
      state_ = State::kTag;
      return Step::kMore;
    case State::kTag:
      return put_tag(symbol);
    case State::kValue:
    case State::kValueLess:
    case State::kValueLessSlash:
      return put_value(symbol);
  }
  return Step::kBroken;
}

bool ToolCallReader::put_gap(char symbol) {
  gap_.push_back(symbol);
  if (!strict_) return is_space(symbol);
  return gap_ == "\n" || (gap_ == "\n\n" && after_invoke_);
}

ToolCallReader::Step ToolCallReader::put_tag(char symbol) {
  if (is_mark(symbol)) return Step::kBroken;
  if (symbol == '"') quoted_ = !quoted_;
  if (symbol != '>' || quoted_) {
    tag_.push_back(symbol);
    return tag_.size() > kMaxTagBytes ? Step::kBroken : Step::kMore;
  }
  const std::optional<Tag> tag = parse_tag();
  if (!tag) return Step::kBroken;
  const Step step = closing_ ? close_tag(*tag) : open_tag(*tag);
  gap_.clear();
  return step;
}

/// A value ends at "</" and the DSML mark; anything else in it is its text.
ToolCallReader::Step ToolCallReader::put_value(char symbol) {
  if (state_ == State::kValueLess && symbol == '/') {
    state_ = State::kValueLessSlash;
    return Step::kMore;
  }
  if (state_ == State::kValueLessSlash && symbol == kMarkDsml) {
    state_ = State::kTag;
    closing_ = true;
    tag_.clear();
    return Step::kMore;
  }
  if (state_ == State::kValueLess) value_ += '<';
  if (state_ == State::kValueLessSlash) value_ += "</";
  state_ = symbol == '<' ? State::kValueLess : State::kValue;
  if (symbol != '<') value_ += is_mark(symbol) ? spelling_of(symbol) : std::string_view(&symbol, 1);
  return Step::kMore;
}

/// ` name attribute="value" …`; strict: one space before each part, and only the attributes that
/// the encoder writes.
std::optional<ToolCallReader::Tag> ToolCallReader::parse_tag() const {
  std::string_view rest = tag_;
  const auto skip_spaces = [&] {
    while (!rest.empty() && is_space(rest.front())) rest.remove_prefix(1);
  };
  if (strict_ && !rest.starts_with(' ')) return std::nullopt;
  skip_spaces();
  Tag tag;
  tag.name = rest.substr(0, std::min(rest.find_first_of(" \n\t\r"), rest.size()));
  rest.remove_prefix(tag.name.size());
  for (skip_spaces(); !rest.empty(); skip_spaces()) {
    const size_t quote = rest.find("=\"");
    const size_t end = quote == std::string_view::npos ? quote : rest.find('"', quote + 2);
    if (end == std::string_view::npos) return std::nullopt;
    const std::string_view key = rest.substr(0, quote);
    const std::string_view value = rest.substr(quote + 2, end - quote - 2);
    std::optional<std::string_view>* attribute = nullptr;
    if (key == "name") attribute = &tag.name_attribute;
    if (key == "string") attribute = &tag.string_attribute;
    if (attribute == nullptr || attribute->has_value()) return std::nullopt;
    *attribute = value;
    rest.remove_prefix(end + 1);
  }
  if (strict_) {
    std::string written = " " + std::string(tag.name);
    if (tag.name_attribute) written.append(" name=\"").append(*tag.name_attribute).append("\"");
    if (tag.string_attribute)
      written.append(" string=\"").append(*tag.string_attribute).append("\"");
    if (written != tag_) return std::nullopt;
  }
  return tag;
}

ToolCallReader::Step ToolCallReader::open_tag(const Tag& tag) {
  state_ = State::kGap;
  if (strict_ && level_ != Level::kOutside && gap_ != "\n") return Step::kBroken;
  if (level_ == Level::kOutside) {
    const bool block = strict_ ? tag.name == "calls" : is_block_name(tag.name);
    level_ = Level::kCalls;
    if (block && !tag.name_attribute) return Step::kMore;
    // Lenient: a call without a block around it.
    return !strict_ && open_invoke(tag) ? Step::kMore : Step::kBroken;
  }
  if (level_ == Level::kCalls) return open_invoke(tag) ? Step::kMore : Step::kBroken;
  if (tag.name != "parameter" || !tag.name_attribute) return Step::kBroken;
  is_string_.reset();
  if (tag.string_attribute == "true") is_string_ = true;
  if (tag.string_attribute == "false") is_string_ = false;
  if (strict_ && !is_string_) return Step::kBroken;
  parameter_ = *tag.name_attribute;
  value_.clear();
  level_ = Level::kParameter;
  state_ = State::kValue;
  after_invoke_ = false;
  return Step::kMore;
}

bool ToolCallReader::open_invoke(const Tag& tag) {
  if (tag.name != "invoke" || !tag.name_attribute || tag.name_attribute->empty() ||
      (strict_ && tag.string_attribute)) {
    return false;
  }
  const std::string_view name = *tag.name_attribute;
  call_ = {.arguments = "{"};
  names_.clear();
  // "ns::f" is split unless it is not one name in one namespace.
  const size_t separator = name.find("::");
  if (separator != std::string_view::npos && separator > 0 && separator + 2 < name.size() &&
      name.find("::", separator + 2) == std::string_view::npos) {
    call_.name_space = name.substr(0, separator);
    call_.name = name.substr(separator + 2);
  } else {
    call_.name = name;
  }
  level_ = Level::kInvoke;
  after_invoke_ = true;
  return true;
}

ToolCallReader::Step ToolCallReader::close_tag(const Tag& tag) {
  const bool in_value = level_ == Level::kParameter;
  state_ = State::kGap;
  if (tag.name_attribute || tag.string_attribute) return Step::kBroken;
  if (strict_ && !in_value && gap_.empty()) return Step::kBroken;
  if (in_value) {
    // Strict: only its own tag ends a parameter.
    if ((strict_ && tag.name != "parameter") || !finish_parameter()) return Step::kBroken;
    level_ = Level::kInvoke;
    if (tag.name == "parameter") return Step::kMore;
  }
  const bool block = strict_ ? tag.name == "calls" : is_block_name(tag.name);
  if (level_ == Level::kInvoke && (tag.name == "invoke" || (!strict_ && block))) {
    if (block) {
      done_ = true;
      repaired_ = true;
    }
    return finish_call();
  }
  if (level_ == Level::kCalls && block && !(strict_ && num_calls_ == 0)) {
    done_ = true;
    raw_.clear();
    return Step::kDone;
  }
  return Step::kBroken;
}

bool ToolCallReader::finish_parameter() {
  bool string = is_string_.value_or(true);
  if (!is_string_) {
    const std::optional<std::string> type = schemas_.type_of(call_, parameter_);
    string = !type || *type == "string";
  }
  if (!string && !is_json(value_)) {
    string = true;
    repaired_ = true;
  }
  if (!names_.insert(parameter_).second) return false;
  if (names_.size() > 1) call_.arguments += ", ";
  call_.arguments += quote_json(parameter_) + ": " + (string ? quote_json(value_) : value_);
  value_.clear();
  return true;
}

ToolCallReader::Step ToolCallReader::finish_call() {
  call_.arguments += "}";
  level_ = Level::kCalls;
  after_invoke_ = false;
  ++num_calls_;
  raw_.clear();
  return Step::kCall;
}

ChatToolCall ToolCallReader::take_call() {
  return std::move(call_);
}

bool ToolCallReader::lacks_only_its_end() const {
  if (level_ != Level::kCalls || num_calls_ == 0) return false;
  const size_t begin = raw_.find_first_not_of(" \n\t\r");
  if (begin == std::string::npos) return true;
  static const std::string kEnd = std::string("</") + kMarkDsml + " calls";
  return kEnd.starts_with(std::string_view(raw_).substr(begin));
}

}  // namespace deepinfer::text
