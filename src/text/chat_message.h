#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "text/json_value.h"
#include "text/prompt_builder.h"

namespace deepinfer::text {

enum class ChatRole : uint8_t {
  kSystem,
  kUser,
  kAssistant,
  kTool,
  kLatestReminder,
  kSearchResults,  ///< Known, but no part of a prompt.
};

/// A part of a user's turn; the parts are joined by blank lines.
struct ChatBlock {
  PromptBuilder text;  ///< With image placeholders as tokens.
  bool tool_result = false;
  std::string tool_use_id;
};

/// One checked message of a conversation (spec/checkpoint.md §4.1).
struct ChatMessage {
  ChatRole role = ChatRole::kUser;
  std::string where;              ///< "messages[2]": for errors.
  PromptBuilder content;          ///< All roles but user and tool.
  std::vector<ChatBlock> blocks;  ///< User and tool; at least one.
  PromptBuilder reasoning;
  JsonValue tool_calls;       ///< A list, or null.
  JsonValue tools;            ///< A list, or null.
  std::string tools_where;    ///< "messages[2].tools": for errors.
  JsonValue response_format;  ///< Null: none.
  std::string task;           ///< Empty: none.
  bool wo_eos = false;

  bool has_tools() const { return !tools.values.empty(); }
};

/// Checks and reads a list of messages, without those of kSearchResults; at least one is left.
/// `name` is what errors call the list. Image blocks are appended to `images`. Errors:
/// kInvalidArgument naming the message and the field.
std::vector<ChatMessage> read_messages(const JsonValue& list, const std::string& name,
                                       std::vector<std::string>& images);

}  // namespace deepinfer::text
