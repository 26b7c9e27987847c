#include <fmt/format.h>
#include <gtest/gtest.h>
// gtest comes first: rapidcheck's glue needs it.
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "deepinfer/chat.h"
#include "test_support.h"
#include "text/json_value.h"

namespace deepinfer::text {
namespace {

/// Completions made of the format's parts in any order, and of words "w0", "w1", … that can be
/// found again.
std::string random_completion(size_t& num_words) {
  static const std::vector<std::string> kParts = {
      "\n",
      "\n\n",
      "<",
      "</",
      ">",
      " ",
      "\"",
      "｜DSML｜",
      "<think>",
      "</think>",
      " calls>\n",
      "<｜DSML｜ calls>\n",
      "\n\n<｜DSML｜ calls>\n",
      "<｜DSML｜ invoke name=\"f\">\n",
      "<｜DSML｜ parameter name=\"a\" string=\"true\">",
      "<｜DSML｜ parameter name=\"b\" string=\"false\">",
      "</｜DSML｜ parameter>\n",
      "</｜DSML｜ parameter>",
      "</｜DSML｜ invoke>\n",
      "</｜DSML｜ invoke>",
      "</｜DSML｜ calls>",
      "\n</｜DSML｜ calls>",
      "<｜DSML｜tool_calls>\n",
      "5",
      "{\"k\": [1]}",
      "é漢😀",
      "<｜begin▁of▁sentence｜>",
      "stop"};
  const auto choices =
      *rc::gen::container<std::vector<size_t>>(rc::gen::inRange<size_t>(0, kParts.size() + 12));
  std::string text;
  num_words = 0;
  for (const size_t choice : choices) {
    text += choice < kParts.size() ? kParts[choice] : fmt::format("w{};", num_words++);
  }
  return text;
}

ChatDelta parse(const std::string& text, const std::vector<size_t>& cuts,
                const ChatParserOptions& options, bool natural, bool& malformed) {
  ChatParser parser(options);
  ChatDelta message;
  size_t begin = 0;
  for (const size_t cut : cuts) {
    if (cut <= begin || cut >= text.size()) continue;
    message.append(parser.push(std::string_view(text).substr(begin, cut - begin)));
    begin = cut;
  }
  message.append(parser.push(std::string_view(text).substr(begin)));
  message.append(parser.finish(natural));
  malformed = parser.malformed();
  return message;
}

RC_GTEST_PROP(ChatParser, DoesNotDependOnCuts,
              (bool strict, bool in_reasoning, bool natural, bool stops)) {
  size_t num_words = 0;
  const std::string text = random_completion(num_words);
  const ChatParserOptions options = {
      .strict = strict,
      .in_reasoning = in_reasoning,
      .stop = stops ? std::vector<std::string>{"stop", "w1;", "\n\n"} : std::vector<std::string>{},
      .reasoning_holdback_bytes = *rc::gen::inRange<int64_t>(0, 40)};
  auto cuts =
      *rc::gen::container<std::vector<size_t>>(rc::gen::inRange<size_t>(0, text.size() + 1));
  std::sort(cuts.begin(), cuts.end());
  bool malformed_whole = false;
  bool malformed_cut = false;
  const ChatDelta whole = parse(text, {}, options, natural, malformed_whole);
  const ChatDelta cut = parse(text, cuts, options, natural, malformed_cut);
  RC_ASSERT(whole == cut);
  RC_ASSERT(malformed_whole == malformed_cut);
}

RC_GTEST_PROP(ChatParser, LosesNoText, (bool strict, bool in_reasoning, bool natural)) {
  size_t num_words = 0;
  const std::string text = random_completion(num_words);
  bool malformed = false;
  const ChatDelta message =
      parse(text, {}, {.strict = strict, .in_reasoning = in_reasoning}, natural, malformed);
  std::string all = fmt::format("{}|{}", message.reasoning, message.content);
  for (const ChatToolCall& call : message.tool_calls) {
    all += fmt::format("|{}{}", call.name, call.arguments);
    parse_json_value(call.arguments, "arguments");  // always JSON
  }
  for (size_t i = 0; i < num_words; ++i) {
    RC_ASSERT(all.find(fmt::format("w{};", i)) != std::string::npos);
  }
}

/// An assistant's message that the model could have written.
JsonValue random_message() {
  const auto words = rc::gen::map(
      rc::gen::container<std::vector<std::string>>(rc::gen::elementOf(std::vector<std::string>{
          "a", " b", "\n", "\"", "<", "</", "｜DSML｜", "</think>", "<think>", "<｜DSML｜ calls>",
          "é", "😀", "</｜DSML｜ parameter>", "<｜end▁of▁sentence｜>", "{", "\\"})),
      [](const std::vector<std::string>& parts) {
        std::string text;
        for (const std::string& part : parts) text += part;
        return text;
      });
  JsonValue message = JsonValue::object();
  message.set("role", JsonValue::string("assistant"));
  message.set("content", JsonValue::string(*words));
  message.set("reasoning_content", JsonValue::string(*words));
  JsonValue calls;
  calls.kind = JsonValue::Kind::kArray;
  for (int i = *rc::gen::inRange(0, 3); i > 0; --i) {
    JsonValue arguments = JsonValue::object();
    if (*rc::gen::arbitrary<bool>()) arguments.set("text", JsonValue::string(*words));
    if (*rc::gen::arbitrary<bool>())
      arguments.set("n", parse_json_value("[1, null, {\"k\": 2.5}]", "n"));
    JsonValue function = JsonValue::object();
    function.set("name",
                 JsonValue::string(*rc::gen::elementOf(std::vector<std::string>{"f", "ns::g"})));
    function.set("arguments", JsonValue::string(to_python_json(arguments)));
    JsonValue call = JsonValue::object();
    call.set("function", std::move(function));
    calls.values.push_back(std::move(call));
  }
  message.set("tool_calls", std::move(calls));
  return message;
}

RC_GTEST_PROP(ChatParser, InvertsTheEncoderOnTokens, ()) {
  const JsonValue message = random_message();
  const Tokenizer& t = tiny_tokenizer();
  const ChatOptions options = {.context = R"([{"role":"user","content":"u"}])"};
  const std::vector<int32_t> ids =
      encode_chat(t, render_chat(fmt::format("[{}]", to_python_json(message)), options));
  ChatParser parser({.strict = true, .in_reasoning = true}, &t);
  ChatDelta parsed;
  for (const int32_t id : ids) parsed.append(parser.push_token(id));
  parsed.append(parser.finish(true));
  RC_ASSERT(!parser.malformed());
  RC_ASSERT(parsed.content == message.find("content")->text);
  RC_ASSERT(parsed.reasoning == message.find("reasoning_content")->text);
  RC_ASSERT(encode_chat(t, render_chat(fmt::format("[{}]", chat_message_json(parsed)), options)) ==
            ids);
}

}  // namespace
}  // namespace deepinfer::text
