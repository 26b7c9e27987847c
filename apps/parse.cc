#include <algorithm>

#include "apps/chat_flags.h"
#include "apps/commands.h"
#include "apps/output.h"
#include "deepinfer/chat.h"

namespace deepinfer::apps {

int parse(std::span<const std::string> arguments) {
  Flags flags(
      "parse",
      "Reads a completion from standard input, as the model wrote it behind the prompt, and "
      "prints it as\none JSON message: content, reasoning_content, tool_calls. Markup that "
      "is not what it should be\nbecomes text, and \"malformed\" is then true.");
  ChatParserOptions options = {.in_reasoning = true};
  std::optional<std::string> tools;
  int64_t chunk = 0;
  bool cut_off = false;
  add_thinking_flag(flags, options.in_reasoning);
  flags.file("--tools", "FILE", &tools, "JSON list of the tools that could be called");
  flags.repeated("--stop", "TEXT", &options.stop,
                 "The content ends before this text; may be given several times");
  flags.integer("--chunk", &chunk, 0,
                "Feed the parser N bytes at a time; 0: all at once (default 0). Never changes the "
                "result");
  flags.toggle("--strict", &options.strict, "Read only what the released encoder writes");
  flags.toggle("--cut-off", &cut_off, "The completion was cut off and did not end by itself");
  if (!flags.parse(arguments)) return 0;
  options.tools = read_tools(tools);

  ChatParser parser(options);
  const std::string text = read_standard_input();
  const size_t step = chunk == 0 ? std::max<size_t>(text.size(), 1) : static_cast<size_t>(chunk);
  ChatDelta message;
  for (size_t at = 0; at < text.size(); at += std::min(step, text.size() - at)) {
    message.append(parser.push(std::string_view(text).substr(at, step)));
  }
  message.append(parser.finish(!cut_off));
  std::string json = chat_message_json(message);
  json.pop_back();
  Output().write(json + ", \"malformed\": " + (parser.malformed() ? "true" : "false") + "}\n");
  return 0;
}

}  // namespace deepinfer::apps
