#include "text/chat_message.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "base/error.h"

namespace deepinfer::text {
namespace {

using Kind = JsonValue::Kind;

constexpr std::array<std::pair<std::string_view, ChatRole>, 6> kRoles = {
    {{"system", ChatRole::kSystem},
     {"user", ChatRole::kUser},
     {"assistant", ChatRole::kAssistant},
     {"tool", ChatRole::kTool},
     {"latest_reminder", ChatRole::kLatestReminder},
     {"direct_search_results", ChatRole::kSearchResults}}};
constexpr std::array<std::string_view, 6> kTasks = {"action", "query", "authority",
                                                    "domain", "title", "read_url"};

/// Reads the fields of one message; errors name the message and the field.
class MessageReader {
 public:
  MessageReader(const JsonValue& json, std::string where, std::vector<std::string>& images)
      : json_(json), where_(std::move(where)), images_(images) {}

  ChatMessage read() {
    if (!json_.is(Kind::kObject)) wrong(where_, json_, "an object");
    message_.where = where_;
    read_role();
    if (message_.role == ChatRole::kSearchResults) return std::move(message_);
    read_content();
    if (const JsonValue* reasoning = field("reasoning_content", Kind::kString)) {
      check_no_image(reasoning->text, where_ + ".reasoning_content");
      message_.reasoning.assistant_text(reasoning->text);
    }
    if (const JsonValue* calls = field("tool_calls", Kind::kArray)) message_.tool_calls = *calls;
    if (const JsonValue* tools = field("tools", Kind::kArray)) message_.tools = *tools;
    message_.tools_where = where_ + ".tools";
    if (const JsonValue* format = field("response_format", Kind::kObject)) {
      message_.response_format = *format;
    }
    if (const JsonValue* wo_eos = field("wo_eos", Kind::kBoolean))
      message_.wo_eos = wo_eos->boolean;
    read_task();
    return std::move(message_);
  }

 private:
  [[noreturn]] static void wrong(const std::string& what, const JsonValue& value,
                                 std::string_view expected) {
    fail(ErrorCode::kInvalidArgument, "{} is {}, expected {}", what, describe(value.kind),
         expected);
  }

  /// A field that is absent, null or of the given kind.
  const JsonValue* field(std::string_view key, Kind kind) const {
    const JsonValue* value = json_.find(key);
    if (value == nullptr || value->is(Kind::kNull)) return nullptr;
    if (!value->is(kind)) wrong(fmt::format("{}.{}", where_, key), *value, describe(kind));
    return value;
  }

  void read_role() {
    const JsonValue* role = field("role", Kind::kString);
    for (const auto& [name, value] : kRoles) {
      if (role != nullptr && role->text == name) {
        message_.role = value;
        return;
      }
    }
    fail(ErrorCode::kInvalidArgument,
         "{}.role is {}, expected system, user, assistant, tool, latest_reminder or "
         "direct_search_results",
         where_, role == nullptr ? "missing" : quote_json(role->text.substr(0, 100)));
  }

  void read_task() {
    const JsonValue* task = field("task", Kind::kString);
    if (task == nullptr) return;
    for (const std::string_view known : kTasks) {
      if (task->text == known) {
        message_.task = task->text;
        return;
      }
    }
    fail(ErrorCode::kInvalidArgument,
         "{}.task is {}, expected action, query, authority, domain, title or read_url", where_,
         quote_json(task->text.substr(0, 100)));
  }

  void read_content() {
    const JsonValue* content = json_.find("content_blocks");
    std::string name = where_ + ".content_blocks";
    if (content == nullptr || content->is(Kind::kNull)) {
      content = json_.find("content");
      name = where_ + ".content";
    }
    const bool in_blocks = message_.role == ChatRole::kUser || message_.role == ChatRole::kTool;
    if (content != nullptr && content->is(Kind::kArray) && message_.role == ChatRole::kUser) {
      for (size_t i = 0; i < content->values.size(); ++i) {
        message_.blocks.push_back(read_block(content->values[i], fmt::format("{}[{}]", name, i)));
      }
      if (message_.blocks.empty()) message_.blocks.emplace_back();
      return;
    }
    PromptBuilder& text = in_blocks ? message_.blocks.emplace_back().text : message_.content;
    read_text(content, name, text);
    if (message_.role == ChatRole::kTool) {
      message_.blocks[0].tool_result = true;
      if (const JsonValue* id = field("tool_call_id", Kind::kString)) {
        message_.blocks[0].tool_use_id = id->text;
      }
    }
  }

  /// Content as text: a string, or a list of blocks that are joined by blank lines.
  void read_text(const JsonValue* content, const std::string& name, PromptBuilder& text) {
    if (content == nullptr || content->is(Kind::kNull)) return;
    if (content->is(Kind::kString)) {
      add_text(content->text, name, text);
      return;
    }
    if (!content->is(Kind::kArray)) wrong(name, *content, "a string or a list of blocks");
    for (size_t i = 0; i < content->values.size(); ++i) {
      if (i > 0) text.text("\n\n");
      read_item(content->values[i], fmt::format("{}[{}]", name, i), text);
    }
  }

  /// One block of a user's content, which may be the result of a tool.
  ChatBlock read_block(const JsonValue& json, const std::string& name) {
    ChatBlock block;
    if (type_of(json, name) != "tool_result") {
      read_item(json, name, block.text);
      return block;
    }
    block.tool_result = true;
    read_text(json.find("content"), name + ".content", block.text);
    const JsonValue* id = json.find("tool_use_id");
    if (id != nullptr && id->is(Kind::kString)) block.tool_use_id = id->text;
    return block;
  }

  /// A text or an image, or what stands for anything else.
  void read_item(const JsonValue& json, const std::string& name, PromptBuilder& text) {
    const std::string& type = type_of(json, name);
    if (type == "text") {
      const JsonValue* value = json.find("text");
      if (value == nullptr || value->is(Kind::kNull)) return;
      if (!value->is(Kind::kString)) wrong(name + ".text", *value, "a string");
      add_text(value->text, name + ".text", text);
    } else if (type == "image" || type == "image_url") {
      text.token(kImage);
      images_.push_back(to_python_json(json));
    } else {
      text.text(fmt::format("[Unsupported {}]", type));
    }
  }

  static const std::string& type_of(const JsonValue& json, const std::string& name) {
    if (!json.is(Kind::kObject)) wrong(name, json, "an object");
    const JsonValue* type = json.find("type");
    if (type == nullptr || !type->is(Kind::kString)) {
      fail(ErrorCode::kInvalidArgument, "{}.type is {}, expected a string such as \"text\"", name,
           type == nullptr ? "missing" : describe(type->kind));
    }
    return type->text;
  }

  void add_text(const std::string& value, const std::string& name, PromptBuilder& text) const {
    check_no_image(value, name);
    if (message_.role == ChatRole::kAssistant) {
      text.assistant_text(value);
    } else {
      text.text(value);
    }
  }

  static void check_no_image(const std::string& text, const std::string& name) {
    if (text.find(kImage) != std::string::npos) {
      fail(ErrorCode::kInvalidArgument,
           "{} contains \"{}\", which only an image block may stand for", name, kImage);
    }
  }

  const JsonValue& json_;
  const std::string where_;
  std::vector<std::string>& images_;
  ChatMessage message_;
};

}  // namespace

std::vector<ChatMessage> read_messages(const JsonValue& list, const std::string& name,
                                       std::vector<std::string>& images) {
  if (!list.is(Kind::kArray) || list.values.empty()) {
    fail(ErrorCode::kInvalidArgument, "{} is {}, expected a list of at least one message", name,
         list.is(Kind::kArray) ? "empty" : describe(list.kind));
  }
  std::vector<ChatMessage> messages;
  messages.reserve(list.values.size());
  for (size_t i = 0; i < list.values.size(); ++i) {
    ChatMessage message =
        MessageReader(list.values[i], fmt::format("{}[{}]", name, i), images).read();
    if (message.role != ChatRole::kSearchResults) messages.push_back(std::move(message));
  }
  if (messages.empty()) {
    fail(ErrorCode::kInvalidArgument, "{} holds direct_search_results only, which no prompt shows",
         name);
  }
  return messages;
}

}  // namespace deepinfer::text
