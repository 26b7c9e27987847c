#include "apps/chat_flags.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/file.h"

namespace deepinfer::apps {
namespace {

constexpr size_t kMaxInputBytes = size_t{1} << 30;

}  // namespace

std::string read_standard_input() {
  std::string bytes;
  for (;;) {
    constexpr size_t kBlock = size_t{1} << 16;
    const size_t size = bytes.size();
    bytes.resize(size + kBlock);
    const ssize_t count = ::read(STDIN_FILENO, bytes.data() + size, kBlock);
    const int error = errno;
    bytes.resize(size + (count > 0 ? static_cast<size_t>(count) : 0));
    if (count == 0) return bytes;
    if (count < 0 && error != EINTR) {
      fail(ErrorCode::kIo, "standard input: cannot read: {}", std::strerror(error));
    }
    if (bytes.size() > kMaxInputBytes) {
      fail(ErrorCode::kInvalidFile, "standard input: longer than {} bytes", kMaxInputBytes);
    }
  }
}

std::string read_text(const std::string& path) {
  return path == "-" ? read_standard_input() : read_file(path, kMaxInputBytes);
}

void add_thinking_flag(Flags& flags, bool& target) {
  flags.value(
      "--thinking", "on|off",
      [&target](const std::string& text) {
        if (text != "on" && text != "off") {
          fail(ErrorCode::kInvalidArgument, "--thinking: \"{}\" is neither on nor off", text);
        }
        target = text == "on";
      },
      "Whether the model reasons before it answers (default on)");
}

void add_chat_flags(Flags& flags, ChatFlags& target) {
  add_thinking_flag(flags, target.thinking);
  flags.value(
      "--effort", "LEVEL",
      [&target](const std::string& text) {
        // An empty one would mean the default.
        if (text.empty()) fail(ErrorCode::kInvalidArgument, "--effort: the level is empty");
        target.effort = text;
      },
      "Reasoning effort: low, high, max, or 1 to 100 (default high)");
  flags.file("--tools", "FILE", &target.tools_file, "JSON list of the tools that may be called");
  flags.toggle("--continue", &target.continue_final_message,
               "The last message is an assistant's that the model goes on with");
}

void refuse_chat_flags(const Flags& flags, std::string_view wanted) {
  for (const char* const flag : {"--thinking", "--effort", "--tools", "--continue"}) {
    if (flags.given(flag)) {
      fail(ErrorCode::kInvalidArgument, "{}: holds for conversations; give {} too", flag, wanted);
    }
  }
}

std::string read_tools(const std::optional<std::string>& path) {
  if (!path) return {};
  if (*path == "-") {
    fail(ErrorCode::kInvalidArgument, "--tools: tools come from a file, not from standard input");
  }
  std::string tools = read_file(*path, kMaxInputBytes);
  // Empty options would mean that there are none.
  if (tools.empty()) {
    fail(ErrorCode::kInvalidFile, "tools: not valid JSON at byte 1: {} is empty", *path);
  }
  return tools;
}

ChatOptions chat_options(const ChatFlags& flags) {
  return {.thinking = flags.thinking,
          .effort = flags.effort,
          .continue_final_message = flags.continue_final_message,
          .tools = read_tools(flags.tools_file)};
}

}  // namespace deepinfer::apps
