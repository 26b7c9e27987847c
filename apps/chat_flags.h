#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "apps/cli.h"
#include "deepinfer/chat.h"

namespace deepinfer::apps {

/// The flags that say how messages become a prompt.
struct ChatFlags {
  bool thinking = true;
  std::string effort;
  std::optional<std::string> tools_file;
  bool continue_final_message = false;
};

/// Declares --thinking, --effort, --tools and --continue.
void add_chat_flags(Flags& flags, ChatFlags& target);
/// Declares --thinking alone.
void add_thinking_flag(Flags& flags, bool& target);

/// Refuses the flags of add_chat_flags where there is no conversation: `wanted` says what would
/// make one. Errors: kInvalidArgument.
void refuse_chat_flags(const Flags& flags, std::string_view wanted);

/// The options that the flags stand for; reads the file of tools. Errors: those of read_tools.
ChatOptions chat_options(const ChatFlags& flags);
/// The text of --tools' file; empty without one. Standard input is for other things. Errors:
/// kNotFound, kIo, kInvalidFile (empty or too long), kInvalidArgument.
std::string read_tools(const std::optional<std::string>& path);

/// The text of a file, or of standard input for "-". Errors: kNotFound, kIo, kInvalidFile (too
/// long).
std::string read_text(const std::string& path);
/// All bytes of standard input. Errors: kIo, kInvalidFile (too long).
std::string read_standard_input();

}  // namespace deepinfer::apps
