#include "text/chat_render.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "text/chat_message.h"
#include "text/chat_tools.h"

namespace deepinfer {
namespace text {
namespace {

using Kind = JsonValue::Kind;
using Messages = std::vector<ChatMessage>;

/// The number that stands for the reasoning effort (spec/checkpoint.md §4.3).
int effort_of(const ChatOptions& options) {
  const std::string& effort = options.effort.empty() ? options.default_effort : options.effort;
  std::string names;
  for (const auto& [name, value] : options.effort_levels) {
    if (name == effort) return value;
    names += name + ", ";
  }
  int value = 0;
  const char* end = effort.data() + effort.size();
  const auto [at, error] = std::from_chars(effort.data(), end, value);
  if (error != std::errc() || at != end || value < 1 || value > 100) {
    fail(ErrorCode::kInvalidArgument,
         "the reasoning effort is {}, expected {}or an integer 1 … 100",
         quote_json(effort.substr(0, 100)), names);
  }
  return value;
}

/// Tool messages become parts of the user's turn before them or of a new one, and a user's turn
/// that follows another goes on with it, unless that one has a task (§4.2, step 2).
Messages merge_turns(Messages messages) {
  Messages merged;
  for (ChatMessage& message : messages) {
    const bool tool = message.role == ChatRole::kTool;
    if (tool) message.role = ChatRole::kUser;
    const bool goes_on = !merged.empty() && message.role == ChatRole::kUser &&
                         merged.back().role == ChatRole::kUser &&
                         (tool || merged.back().task.empty());
    if (!goes_on) {
      merged.push_back(std::move(message));
      continue;
    }
    std::move(message.blocks.begin(), message.blocks.end(),
              std::back_inserter(merged.back().blocks));
  }
  return merged;
}

std::string call_id(const JsonValue& call) {
  const JsonValue* function = call.find("function");
  for (const JsonValue* holder : {&call, function}) {
    const JsonValue* id = holder == nullptr ? nullptr : holder->find("id");
    if (id != nullptr && id->is(Kind::kString) && !id->text.empty()) return id->text;
  }
  return {};
}

/// Puts the results of a turn into the order of the calls that they answer; other parts keep their
/// places (§4.2, step 3).
void sort_results(Messages& messages) {
  std::unordered_map<std::string, size_t> order;
  for (ChatMessage& message : messages) {
    if (message.role == ChatRole::kAssistant && !message.tool_calls.values.empty()) {
      order.clear();
      for (size_t i = 0; i < message.tool_calls.values.size(); ++i) {
        const std::string id = call_id(message.tool_calls.values[i]);
        if (!id.empty()) order[id] = i;
      }
    }
    if (message.role != ChatRole::kUser || order.empty()) continue;
    std::vector<ChatBlock> results;
    for (ChatBlock& block : message.blocks) {
      if (block.tool_result) results.push_back(std::move(block));
    }
    const auto rank = [&](const ChatBlock& block) {
      const auto found = order.find(block.tool_use_id);
      return found == order.end() ? 0 : found->second;
    };
    std::stable_sort(results.begin(), results.end(),
                     [&](const ChatBlock& a, const ChatBlock& b) { return rank(a) < rank(b); });
    size_t next = 0;
    for (ChatBlock& block : message.blocks) {
      if (block.tool_result) block = std::move(results[next++]);
    }
  }
}

/// Renders the messages of a conversation one after the other (§4.3).
class Renderer {
 public:
  Renderer(const Messages& messages, const ChatOptions& options, int effort)
      : messages_(messages), thinking_(options.thinking), effort_(effort) {
    drop_ = options.drop_thinking && std::none_of(messages.begin(), messages.end(),
                                                  [](const auto& m) { return m.has_tools(); });
    for (size_t i = 0; i < messages.size(); ++i) {
      if (starts_generation(i)) last_ = static_cast<ptrdiff_t>(i);
    }
  }

  void render(size_t i, PromptBuilder& prompt) const {
    const ChatMessage& message = messages_[i];
    if (i == 0 && (thinking_ || message.role == ChatRole::kSystem)) prompt.token(kSystem);
    if (i == 0 && thinking_) {
      prompt.text(
          fmt::format("Reasoning Effort: {} (range 1-100, the higher the value, the more "
                      "thorough the reasoning)\n\n",
                      effort_));
    }
    switch (message.role) {
      case ChatRole::kSystem:
        if (i > 0) prompt.token(kSystem);
        render_system(message, prompt);
        break;
      case ChatRole::kUser:
      case ChatRole::kTool:
        render_user(message, prompt);
        break;
      case ChatRole::kAssistant:
        render_assistant(i, prompt);
        break;
      case ChatRole::kSearchResults:
        break;
      case ChatRole::kLatestReminder:
        prompt.token(kLatestReminder);
        prompt.append(message.content.segments());
        break;
    }
    render_transition(i, prompt);
  }

 private:
  /// Whether the model's turn may follow message i: a user's turn, or a system message inside.
  bool starts_generation(size_t i) const {
    const ChatRole role = messages_[i].role;
    return role == ChatRole::kUser || (role == ChatRole::kSystem && i > 0);
  }

  static void render_system(const ChatMessage& message, PromptBuilder& prompt) {
    prompt.append(message.content.segments());
    if (message.has_tools()) {
      prompt.text("\n\n");
      append_tool_instructions(message.tools, message.tools_where, prompt);
    }
    if (!message.response_format.values.empty()) {
      prompt.text(
          "\n\n## Response Format:\n\nYou MUST strictly adhere to the following schema to "
          "reply:\n");
      prompt.text(to_python_json(message.response_format));
    }
  }

  static void render_user(const ChatMessage& message, PromptBuilder& prompt) {
    prompt.token(kUser);
    for (size_t i = 0; i < message.blocks.size(); ++i) {
      const ChatBlock& block = message.blocks[i];
      if (i > 0) prompt.text("\n\n");
      if (block.tool_result) prompt.text("<tool_result>");
      prompt.append(block.text.segments());
      if (block.tool_result) prompt.text("</tool_result>");
    }
  }

  void render_assistant(size_t i, PromptBuilder& prompt) const {
    const ChatMessage& message = messages_[i];
    const bool answers_task = i > 0 && !messages_[i - 1].task.empty();
    if (thinking_ && !answers_task && (!drop_ || static_cast<ptrdiff_t>(i) > last_)) {
      prompt.append(message.reasoning.segments());
      prompt.token(kEndThink);
    }
    prompt.append(message.content.segments());
    if (!message.tool_calls.values.empty()) {
      prompt.text("\n\n");
      append_tool_calls(message.tool_calls, message.where + ".tool_calls", prompt);
    }
    if (!message.wo_eos) prompt.token(kEos);
  }

  void render_transition(size_t i, PromptBuilder& prompt) const {
    if (i + 1 < messages_.size() && messages_[i + 1].role != ChatRole::kAssistant &&
        messages_[i + 1].role != ChatRole::kLatestReminder) {
      return;
    }
    const std::string& task = messages_[i].task;
    if (!task.empty()) {
      if (task == "action") {
        prompt.token(kAssistant);
        prompt.token(thinking_ ? kThink : kEndThink);
      }
      prompt.token(fmt::format("<｜{}｜>", task));
    } else if (starts_generation(i)) {
      prompt.token(kAssistant);
      const bool thinks = thinking_ && (!drop_ || static_cast<ptrdiff_t>(i) >= last_);
      prompt.token(thinks ? kThink : kEndThink);
    }
  }

  const Messages& messages_;
  bool thinking_;
  int effort_;
  bool drop_;
  ptrdiff_t last_ = -1;  // the last message that starts a generation
};

/// Gives the options' tools and response format to the first system message, or to an empty one in
/// front.
void attach(Messages& messages, const ChatOptions& options) {
  if (options.tools.empty() && options.response_format.empty()) return;
  const auto is_system = [](const ChatMessage& m) { return m.role == ChatRole::kSystem; };
  auto system = std::find_if(messages.begin(), messages.end(), is_system);
  if (system == messages.end()) {
    system = messages.emplace(messages.begin());
    system->role = ChatRole::kSystem;
  }
  if (!options.tools.empty()) {
    if (system->has_tools()) {
      fail(ErrorCode::kInvalidArgument,
           "{}.tools is set, but tools are also given beside the messages", system->where);
    }
    system->tools = parse_json_value(options.tools, "tools");
    system->tools_where = "tools";
    if (!system->tools.is(Kind::kArray)) {
      fail(ErrorCode::kInvalidArgument, "tools is {}, expected a list",
           describe(system->tools.kind));
    }
  }
  if (!options.response_format.empty()) {
    system->response_format = parse_json_value(options.response_format, "response_format");
    if (!system->response_format.is(Kind::kObject)) {
      fail(ErrorCode::kInvalidArgument, "response_format is {}, expected an object",
           describe(system->response_format.kind));
    }
  }
}

/// Marks the last message as one to be continued.
void set_continued(Messages& messages) {
  ChatMessage& last = messages.back();
  if (last.role != ChatRole::kAssistant || !last.tool_calls.values.empty()) {
    fail(ErrorCode::kInvalidArgument,
         "{} cannot be continued: expected an assistant's message without tool calls", last.where);
  }
  last.wo_eos = true;
}

}  // namespace

ChatPrompt render_messages(const JsonValue& messages, const ChatOptions& options) {
  const int effort = effort_of(options);
  ChatPrompt prompt;
  Messages context;
  std::vector<std::string> context_images;  // already in the cache
  if (!options.context.empty()) {
    context =
        read_messages(parse_json_value(options.context, "context"), "context", context_images);
  }
  Messages all = read_messages(messages, "messages", prompt.images);
  if (options.continue_final_message) set_continued(all);
  const bool continues = all.back().role == ChatRole::kAssistant && all.back().wo_eos;
  attach(context.empty() ? all : context, options);

  context = merge_turns(std::move(context));
  const size_t first = context.size();
  all = merge_turns(std::move(all));
  all.insert(all.begin(), std::make_move_iterator(context.begin()),
             std::make_move_iterator(context.end()));
  sort_results(all);

  PromptBuilder builder;
  if (options.add_bos && first == 0) builder.token(kBos);
  const Renderer renderer(all, options, effort);
  for (size_t i = first; i < all.size(); ++i) renderer.render(i, builder);
  prompt.segments = builder.take();
  prompt.continues = continues;
  prompt.in_reasoning = !prompt.segments.empty() && prompt.segments.back().text == kThink &&
                        prompt.segments.back().kind == PromptSegment::Kind::kToken;
  return prompt;
}

}  // namespace text

ChatPrompt render_chat(std::string_view messages, const ChatOptions& options) {
  return text::render_messages(text::parse_json_value(messages, "messages"), options);
}

}  // namespace deepinfer
