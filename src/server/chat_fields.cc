#include "server/chat_fields.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "server/api_error.h"

namespace deepinfer::server {
namespace {

using text::JsonValue;
using Kind = JsonValue::Kind;

// Members of a message that the encoder reads, and those that clients send back though they say
// nothing: accepted while null or empty.
constexpr std::array<std::string_view, 8> kMessageMembers = {
    "role", "content", "reasoning_content", "tool_calls", "tool_call_id", "tools",
    "task", "prefix"};
constexpr std::array<std::string_view, 6> kEmptyMembers = {
    "refusal", "audio", "function_call", "name", "annotations", "reasoning"};

bool contains(std::span<const std::string_view> names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

bool is_empty(const JsonValue& value) {
  return value.is(Kind::kNull) || (value.is(Kind::kArray) && value.values.empty()) ||
         (value.is(Kind::kString) && value.text.empty());
}

/// A part of a list of contents: text only. `text_types`: the names that the route has for it.
void check_part(const FieldValue& part, std::span<const std::string_view> text_types) {
  const JsonValue* type = part.object().find("type");
  const std::string name = part.name() + ".type";
  if (type == nullptr || !type->is(Kind::kString)) {
    throw ApiError(400, name + " is missing, expected \"" + std::string(text_types.front()) + "\"",
                   name);
  }
  if (!contains(text_types, type->text)) {
    FieldValue(*type, name)
        .fail("\"" + std::string(text_types.front()) +
              "\": other parts (images, files, sound) are not supported");
  }
  for (size_t i = 0; i < part.json().keys.size(); ++i) {
    const std::string& key = part.json().keys[i];
    const bool harmless =
        is_empty(part.json().values[i]) && (key == "annotations" || key == "logprobs");
    if (key != "type" && key != "text" && !harmless) part.member(i).fail("no such member");
  }
}

void check_content(const FieldValue& content, std::span<const std::string_view> text_types) {
  if (!content.json().is(Kind::kArray)) return;  // the encoder checks the other kinds
  for (size_t i = 0; i < content.json().values.size(); ++i) {
    check_part(content.item(i), text_types);
  }
}

constexpr std::array<std::string_view, 1> kText = {"text"};
constexpr std::array<std::string_view, 3> kInputText = {"input_text", "output_text", "text"};

/// A checked message, in the encoder's terms.
JsonValue read_message(ApiRequest& request, const FieldValue& value, bool last) {
  JsonValue message = value.object();
  for (size_t i = 0; i < value.json().keys.size(); ++i) {
    const std::string& key = value.json().keys[i];
    const FieldValue member = value.member(i);
    if (key == "content") check_content(member, kText);
    if (key == "prefix" && !member.json().is(Kind::kNull)) {
      if (member.boolean() && !last) member.fail("false, except on the last message");
      request.continue_final_message |= member.json().boolean;
    }
    if (contains(kMessageMembers, key)) continue;
    const JsonValue* role = value.json().find("role");
    // Results of tools used to carry the function's name beside the id, which says the same.
    const bool tool_name = key == "name" && role != nullptr && role->text == "tool";
    if (!tool_name && !(contains(kEmptyMembers, key) && is_empty(member.json()))) {
      throw ApiError(400, member.name() + " is not supported: a message has no such member here",
                     member.name());
    }
    message.erase(key);
  }
  message.erase("prefix");
  if (JsonValue* role = message.find("role"); role != nullptr && role->text == "developer") {
    role->text = "system";
  }
  return message;
}

/// A conversation with nothing in it would begin an answer to nothing.
void check_not_empty(const FieldValue& list) {
  if (list.array().values.empty()) list.fail("at least one message");
}

JsonValue text_message(std::string_view role, std::string text) {
  JsonValue message = JsonValue::object();
  message.set("role", JsonValue::string(std::string(role)));
  message.set("content", JsonValue::string(std::move(text)));
  return message;
}

}  // namespace

void read_messages(ApiRequest& request, const FieldValue& value) {
  check_not_empty(value);
  request.messages.kind = Kind::kArray;
  request.messages.values.reserve(value.json().values.size());
  for (size_t i = 0; i < value.json().values.size(); ++i) {
    const bool last = i + 1 == value.json().values.size();
    request.messages.values.push_back(read_message(request, value.item(i), last));
  }
}

void read_tools(ApiRequest& request, const FieldValue& value) {
  for (size_t i = 0; i < value.array().values.size(); ++i) {
    const FieldValue tool = value.item(i);
    const JsonValue* type = tool.object().find("type");
    if (type == nullptr || type->text != "function") {
      throw ApiError(400, tool.name() + ".type is not \"function\", the only supported kind",
                     tool.name() + ".type");
    }
    const JsonValue* function = tool.json().find("function");
    if (function == nullptr || !function->is(Kind::kObject)) {
      throw ApiError(400, tool.name() + ".function is missing, expected an object with a name",
                     tool.name() + ".function");
    }
    const JsonValue* strict = function->find("strict");
    if (strict != nullptr && strict->boolean) {
      throw ApiError(400,
                     tool.name() +
                         ".function.strict is not supported: structured outputs are not "
                         "built in yet",
                     tool.name() + ".function.strict");
    }
  }
  if (!value.json().values.empty()) request.tools = value.json();
}

void read_tool_choice(ApiRequest& request, const FieldValue& value) {
  if (value.json().is(Kind::kString) && value.json().text == "none") {
    request.tools_offered = false;
  } else if (!value.json().is(Kind::kString) || value.json().text != "auto") {
    value.fail(
        "\"auto\" or \"none\": \"required\" and named tools need structured outputs, which "
        "are not built in yet");
  }
}

void read_effort(ApiRequest& request, const FieldValue& value) {
  if (value.json().is(Kind::kNumber)) {
    request.effort = std::to_string(value.integer(1, 100));
  } else if (value.string() == "none") {
    request.thinking = false;
  } else if (value.string().empty()) {
    value.fail("the name of an effort, or an integer from 1 to 100");
  } else {
    request.effort = value.string();
  }
}

void read_thinking(ApiRequest& request, const FieldValue& value) {
  const JsonValue* type = value.object().find("type");
  if (value.json().keys.size() != 1 || type == nullptr ||
      (type->text != "enabled" && type->text != "disabled")) {
    value.fail("{\"type\": \"enabled\"} or {\"type\": \"disabled\"}");
  }
  request.thinking = type->text == "enabled";
}

void read_template_kwargs(ApiRequest& request, const FieldValue& value) {
  for (size_t i = 0; i < value.object().keys.size(); ++i) {
    const std::string& key = value.json().keys[i];
    const FieldValue member = value.member(i);
    if (member.json().is(Kind::kNull)) continue;
    if (key == "thinking" || key == "enable_thinking") {
      request.thinking = member.boolean();
    } else if (key == "reasoning_effort") {
      read_effort(request, member);
    } else {
      throw ApiError(400,
                     member.name() +
                         " is not supported, expected thinking, enable_thinking or "
                         "reasoning_effort",
                     member.name());
    }
  }
}

void read_continue(ApiRequest& request, const FieldValue& value) {
  request.continue_final_message |= value.boolean();
}

void read_input(ApiRequest& request, const FieldValue& value) {
  request.messages.kind = Kind::kArray;
  if (value.json().is(Kind::kString)) {
    request.messages.values.push_back(text_message("user", value.string()));
    return;
  }
  check_not_empty(value);
  for (size_t i = 0; i < value.json().values.size(); ++i) {
    const FieldValue item = value.item(i);
    JsonValue message = JsonValue::object();
    for (size_t j = 0; j < item.object().keys.size(); ++j) {
      const std::string& key = item.json().keys[j];
      const FieldValue member = item.member(j);
      if (key == "type") {
        if (member.string() != "message") member.fail("\"message\": items are text messages only");
      } else if (key == "role") {
        message.set(key,
                    JsonValue::string(member.string() == "developer" ? "system" : member.string()));
      } else if (key == "content") {
        check_content(member, kInputText);
        JsonValue content = member.json();
        for (JsonValue& part : content.values) part.set("type", JsonValue::string("text"));
        message.set(key, std::move(content));
      } else if (key != "id" && key != "status") {
        throw ApiError(400, member.name() + " is not supported: an item has no such member here",
                       member.name());
      }
    }
    request.messages.values.push_back(std::move(message));
  }
}

void read_instructions(ApiRequest& request, const FieldValue& value) {
  request.instructions = value.string();
}

void read_reasoning(ApiRequest& request, const FieldValue& value) {
  for (size_t i = 0; i < value.object().keys.size(); ++i) {
    const FieldValue member = value.member(i);
    if (member.json().is(Kind::kNull)) continue;
    if (value.json().keys[i] != "effort") {
      throw ApiError(400, member.name() + " is not supported, expected effort", member.name());
    }
    read_effort(request, member);
  }
}

}  // namespace deepinfer::server
