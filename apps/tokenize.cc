#include <fmt/format.h>

#include "apps/chat_flags.h"
#include "apps/cli.h"
#include "apps/commands.h"
#include "apps/json_input.h"
#include "apps/output.h"
#include "apps/records.h"
#include "base/error.h"
#include "deepinfer/chat.h"
#include "deepinfer/tokenizer.h"

namespace deepinfer::apps {
namespace {

/// One line per token: id, tab, its bytes as a JSON string.
std::string token_lines(const Tokenizer& tokenizer, std::span<const int32_t> ids) {
  std::string text;
  for (const int32_t id : ids)
    text += fmt::format("{}\t{}\n", id, json_string(tokenizer.token_bytes(id)));
  return text;
}

/// The prompt of a conversation, as text or as one list of ids.
std::string messages_prompt(const Tokenizer& tokenizer, const std::string& file, bool ids,
                            const ChatFlags& chat) {
  const ChatPrompt prompt = render_chat(read_text(file), chat_options(chat));
  return ids ? json_ids(encode_chat(tokenizer, prompt)) + "\n" : prompt.text();
}

}  // namespace

int tokenize(std::span<const std::string> arguments) {
  Flags flags("tokenize",
              "Prints the token ids of a text, or with --decode the text of token ids. The folder "
              "needs only\ntokenizer.json. Nothing is added to the text, and the line end of "
              "standard input belongs to it. "
              "With --messages: the\nexact prompt of a conversation.");
  std::string model;
  std::optional<std::string> argument;
  bool decode = false;
  bool json = false;
  bool plain = false;
  flags.file("--model", "DIR", &model, "Folder with tokenizer.json");
  flags.require("--model");
  flags.text("text", "TEXT", &argument,
             "The text (with --decode: the list); standard input, byte for byte, if missing");
  flags.toggle("--decode", &decode, "Read a JSON list of ids and print their bytes");
  flags.toggle("--json", &json,
               "Print one list of ids; with --decode, the text as one JSON string");
  flags.toggle("--plain", &plain,
               "Encode the spellings of special tokens (<think>, …) like any other text");
  std::optional<std::string> messages;
  std::optional<std::string> print;
  ChatFlags chat;
  flags.file("--messages", "FILE", &messages, "JSON list of messages; - is standard input");
  flags.value(
      "--print", "prompt|ids",
      [&print](const std::string& text) {
        if (text != "prompt" && text != "ids") {
          fail(ErrorCode::kInvalidArgument, "--print: \"{}\" is neither prompt nor ids", text);
        }
        print = text;
      },
      "With --messages: the prompt's text, or one JSON list of its ids (default prompt)");
  add_chat_flags(flags, chat);
  if (!flags.parse(arguments)) return 0;
  if (messages && (argument || decode || plain)) {
    fail(ErrorCode::kInvalidArgument, "--messages stands without a text, --decode and --plain");
  }
  if (messages && json && print == "prompt") {
    fail(ErrorCode::kInvalidArgument, "--json: prints ids, but --print prompt is given too");
  }
  if (!messages) {
    refuse_chat_flags(flags, "--messages");
    if (print) fail(ErrorCode::kInvalidArgument, "--print: holds for --messages; give it too");
  }
  const Tokenizer tokenizer = Tokenizer::load(model);
  if (messages) {
    Output().write(messages_prompt(tokenizer, *messages, json || print == "ids", chat));
    return 0;
  }
  const std::string input = argument ? *argument : read_standard_input();
  std::string result;
  if (decode) {
    const std::vector<int32_t> ids =
        parse_id_list(input, argument ? "the argument" : "standard input");
    const std::string bytes = tokenizer.decode(ids);
    result = json ? json_string(bytes) + "\n" : bytes;
  } else {
    const std::vector<int32_t> ids =
        tokenizer.encode(input, plain ? SpecialTokens::kPlain : SpecialTokens::kParse);
    result = json ? json_ids(ids) + "\n" : token_lines(tokenizer, ids);
  }
  Output().write(result);
  return 0;
}

}  // namespace deepinfer::apps
