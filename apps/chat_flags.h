#pragma once

#include <optional>
#include <string>

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

/// The options that the flags stand for; reads the file of tools. Errors: those of reading it.
ChatOptions chat_options(const ChatFlags& flags);

/// The text of a file, or of standard input for "-". Errors: kNotFound, kIo, kInvalidFile (too
/// long).
std::string read_text(const std::string& path);
/// All bytes of standard input. Errors: kIo, kInvalidFile (too long).
std::string read_standard_input();

}  // namespace deepinfer::apps
