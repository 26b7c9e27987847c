#include <fmt/format.h>

#include <array>
#include <chrono>

#include "deepinfer/chat.h"
#include "test_support.h"
#include "text/json_value.h"

namespace deepinfer::text {
namespace {

const std::string kEosText = "<｜end▁of▁sentence｜>";

struct Parsed {
  ChatDelta message;
  bool malformed = false;
  bool ended = false;

  friend bool operator==(const Parsed&, const Parsed&) = default;
};

void PrintTo(const Parsed& p, std::ostream* out) {
  *out << chat_message_json(p.message) << (p.malformed ? " malformed" : "")
       << (p.ended ? " ended" : "");
}

Parsed parse_pieces(const std::vector<std::string>& pieces, const ChatParserOptions& options,
                    bool natural) {
  ChatParser parser(options);
  Parsed parsed;
  for (const std::string& piece : pieces) {
    ChatDelta delta = parser.push(piece);
    EXPECT_EQ(replace_invalid_utf8(delta.content), delta.content);
    EXPECT_EQ(replace_invalid_utf8(delta.reasoning), delta.reasoning);
    parsed.message.append(std::move(delta));
  }
  parsed.message.append(parser.finish(natural));
  parsed.malformed = parser.malformed();
  parsed.ended = parser.ended();
  return parsed;
}

/// Parses a text at once, cut in two at every byte, byte by byte, and as tokens: all the same.
Parsed parse(const std::string& text, const ChatParserOptions& options = {}, bool natural = true) {
  SCOPED_TRACE(text);
  const Parsed whole = parse_pieces({text}, options, natural);
  for (size_t cut = 1; cut < text.size(); ++cut) {
    EXPECT_EQ(parse_pieces({text.substr(0, cut), text.substr(cut)}, options, natural), whole)
        << cut;
  }
  std::vector<std::string> bytes;
  for (const char c : text) bytes.emplace_back(1, c);
  EXPECT_EQ(parse_pieces(bytes, options, natural), whole);
  ChatParser parser(options, &tiny_tokenizer());
  Parsed tokens;
  for (const int32_t id : tiny_tokenizer().encode(text))
    tokens.message.append(parser.push_token(id));
  tokens.message.append(parser.finish(natural));
  tokens.malformed = parser.malformed();
  tokens.ended = parser.ended();
  EXPECT_EQ(tokens, whole);
  return whole;
}

const ChatParserOptions kReasoning = {.in_reasoning = true};
const ChatParserOptions kStrict = {.strict = true};
const ChatParserOptions kStrictReasoning = {.strict = true, .in_reasoning = true};

const std::string kBlock =
    "<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n<｜DSML｜ parameter name=\"a\" "
    "string=\"true\">x</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n</｜DSML｜ calls>";
const ChatToolCall kCall = {.name = "f", .arguments = R"({"a": "x"})"};

TEST(ChatParser, ReadsWhatTheEncoderWrites) {
  for (const bool strict : {true, false}) {
    SCOPED_TRACE(strict);
    const ChatParserOptions options = {.strict = strict, .in_reasoning = true};
    EXPECT_EQ(parse("r1</think>a1" + kEosText, options),
              (Parsed{{.reasoning = "r1", .content = "a1"}, false, true}));
    EXPECT_EQ(parse("r</think>c\n\n" + kBlock + kEosText, options),
              (Parsed{{.reasoning = "r", .content = "c", .tool_calls = {kCall}}, false, true}));
    EXPECT_EQ(parse("r</think>\n\n" + kBlock + kEosText, options),
              (Parsed{{.reasoning = "r", .tool_calls = {kCall}}, false, true}));
    const std::string two =
        "\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"ns::f\">\n\n</｜DSML｜ invoke>\n<｜DSML｜ "
        "invoke "
        "name=\"g\">\n<｜DSML｜ parameter name=\"o\" string=\"false\">{\"k\":[1]}</｜DSML｜ "
        "parameter>\n<｜DSML｜ parameter name=\"s\" string=\"true\">a\n\"</b>\" "
        "é</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n</｜DSML｜ calls>";
    EXPECT_EQ(parse("Hi" + two + kEosText, {.strict = strict}),
              (Parsed{{.content = "Hi",
                       .tool_calls = {{.name_space = "ns", .name = "f", .arguments = "{}"},
                                      {.name = "g",
                                       .arguments = R"({"o": {"k":[1]}, "s": "a\n\"</b>\" é"})"}}},
                      false,
                      true}));
  }
}

TEST(ChatParser, StrictKeepsNewlinesAndLenientDropsThemAroundParts) {
  EXPECT_EQ(parse("\nr\n</think>\n\na\n" + kEosText, kStrictReasoning),
            (Parsed{{.reasoning = "\nr\n", .content = "\n\na\n"}, false, true}));
  EXPECT_EQ(parse("\nr\n</think>\n\na\n" + kEosText, kReasoning),
            (Parsed{{.reasoning = "r", .content = "a\n"}, false, true}));
  EXPECT_EQ(parse("\na\n\n\n" + kBlock + "\n" + kEosText),
            (Parsed{{.content = "a", .tool_calls = {kCall}}, false, true}));
  EXPECT_EQ(parse("\n b" + kEosText, {.continues = true}),
            (Parsed{{.content = "\n b"}, false, true}))
      << "a continued text keeps them";
}

// field_cases.md C07.
TEST(ChatParser, C07AnswersWithoutTheEndOfReasoning) {
  const Parsed natural = parse("Good day." + kEosText, kReasoning);
  EXPECT_EQ(natural.message, (ChatDelta{.content = "Good day."}));
  EXPECT_EQ(parse("Good day." + kEosText, kStrictReasoning).message, natural.message);
  EXPECT_EQ(parse("Good day.", kReasoning, true).message, natural.message);
  const Parsed cut = parse("Good day.", kReasoning, false);
  EXPECT_EQ(cut, (Parsed{{.reasoning = "Good day."}, false, false}));
  const Parsed called = parse("Hi\n\n" + kBlock + kEosText);
  EXPECT_EQ(called.message, (ChatDelta{.content = "Hi", .tool_calls = {kCall}}));
  // A long reasoning has been shown by then, and stays what it was.
  const std::string thought(600, 'x');
  const Parsed shown = parse_pieces({thought + kEosText}, kReasoning, true);
  EXPECT_EQ(shown, (Parsed{{.reasoning = thought}, true, true}));
}

// field_cases.md C02.
TEST(ChatParser, C02TypesOfArgumentsComeFromTheMarkup) {
  const std::string tools =
      R"([{"type":"function","function":{"name":"f","parameters":{"type":"object",
      "properties":{"flag":{"type":"boolean"},"zip":{"type":"string"},"n":{"type":"integer"},
      "obj":{"type":"object"}}}}}])";
  const auto arguments = [&](const std::vector<std::array<std::string, 3>>& parameters,
                             bool strict) {
    std::string text = "\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n";
    for (const auto& [name, string, value] : parameters) {
      text += "<｜DSML｜ parameter name=\"" + name + "\"" +
              (string.empty() ? "" : " string=\"" + string + "\"") + ">" + value +
              "</｜DSML｜ parameter>\n";
    }
    const Parsed parsed = parse(text + "</｜DSML｜ invoke>\n</｜DSML｜ calls>" + kEosText,
                                {.strict = strict, .tools = tools});
    EXPECT_EQ(parsed.message.tool_calls.size(), 1U);
    return parsed.message.tool_calls.empty() ? "" : parsed.message.tool_calls[0].arguments;
  };
  for (const bool strict : {true, false}) {
    EXPECT_EQ(arguments({{"flag", "false", "true"},
                         {"zip", "true", "00417"},
                         {"n", "false", "5"},
                         {"obj", "false", R"({"k":[1]})"}},
                        strict),
              R"({"flag": true, "zip": "00417", "n": 5, "obj": {"k":[1]}})");
    EXPECT_EQ(arguments({{"n", "false", "Bob"}}, strict), R"({"n": "Bob"})");
    EXPECT_EQ(arguments({{"zip", "false", "5"}}, strict), R"({"zip": 5})") << "the markup decides";
  }
  EXPECT_EQ(arguments({{"n", "false", std::string("1\0x", 3)}}, true), R"({"n": "1\u0000x"})")
      << "found by a fuzzer: a NUL does not end a value";
  EXPECT_EQ(arguments({{"n", "false",
                        "\uFEFF"
                        "1"}},
                      true),
            "{\"n\": \"\uFEFF"
            "1\"}");
  EXPECT_EQ(
      arguments({{"flag", "", "true"}, {"zip", "", "00417"}, {"n", "", "x"}, {"new", "", "1"}},
                false),
      R"({"flag": true, "zip": "00417", "n": "x", "new": "1"})")
      << "then the schema";
}

TEST(ChatParser, LenientReadsOtherSpellings) {
  const std::vector<std::string> blocks = {
      "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"a\" "
      "string=\"true\">x</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
      "<｜DSML｜ calls><｜DSML｜ invoke name=\"f\"><｜DSML｜ parameter name=\"a\" "
      "string=\"true\">x</｜DSML｜ parameter></｜DSML｜ invoke></｜DSML｜ calls>",
      "<｜DSML｜ calls>\n\n  <｜DSML｜ invoke  name=\"f\" >\n  <｜DSML｜ parameter string=\"true\" "
      "name=\"a\">x</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n\n</｜DSML｜tool_calls>"};
  for (const std::string& block : blocks) {
    EXPECT_EQ(parse("Hi\n" + block + kEosText),
              (Parsed{{.content = "Hi", .tool_calls = {kCall}}, false, true}));
    const Parsed strict = parse("Hi\n\n" + block + kEosText, kStrict);
    EXPECT_EQ(strict, (Parsed{{.content = "Hi\n\n" + block}, true, true}))
        << "V4's and others' tags";
  }
}

TEST(ChatParser, LenientRepairsWhatIsMissing) {
  const std::string parameter =
      "<｜DSML｜ parameter name=\"a\" string=\"true\">x</｜DSML｜ parameter>\n";
  const std::string invoke = "<｜DSML｜ invoke name=\"f\">\n" + parameter + "</｜DSML｜ invoke>";
  for (const std::string& text :
       {"Hi\n\n<｜DSML｜ calls>\n" + invoke,
        "Hi\n\n<｜DSML｜ calls>\n" + invoke + "\n</｜DSML｜ cal",
        "Hi\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n" + parameter + "</｜DSML｜ calls>",
        "Hi\n\n" + invoke + kEosText}) {
    EXPECT_EQ(parse(text).message, (ChatDelta{.content = "Hi", .tool_calls = {kCall}}));
    EXPECT_TRUE(parse(text).malformed);
  }
  const Parsed inside = parse("thought\n\n" + kBlock + kEosText, kReasoning);
  EXPECT_EQ(inside, (Parsed{{.reasoning = "thought", .tool_calls = {kCall}}, true, true}));
}

TEST(ChatParser, MalformedMarkupBecomesText) {
  const std::vector<std::string> bad = {
      "\n\n<｜DSML｜ calls>\nabc",
      "\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke nme=\"f\">\n",
      "\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\nabc</｜DSML｜ invoke>",
      "\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n<｜DSML｜ parameter name=\"a\" "
      "string=\"true\">x",
      "\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\" extra=\"1\">\n\n</｜DSML｜ "
      "invoke>\n</｜DSML｜ calls>",
      "\n\n<｜DSML｜ other>",
      "a ｜DSML｜ b",
      "a <｜DSML｜",
      "\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n<｜DSML｜ parameter name=\"a\" "
      "string=\"true\">1"
      "</｜DSML｜ parameter>\n<｜DSML｜ parameter name=\"a\" string=\"true\">2</｜DSML｜ "
      "parameter>\n"
      "</｜DSML｜ invoke>\n</｜DSML｜ calls>",
      "\n\n<｜DSML｜ calls>\n<｜DSML｜ " + std::string(5000, 'x'),
  };
  for (const std::string& text : bad) {
    for (const bool strict : {true, false}) {
      const Parsed parsed = text.size() < 1000
                                ? parse("Hi" + text + kEosText, {.strict = strict})
                                : parse_pieces({"Hi" + text + kEosText}, {.strict = strict}, true);
      EXPECT_EQ(parsed, (Parsed{{.content = "Hi" + text}, true, true})) << strict;
    }
  }
  // A mention of the markup in reasoning stays there.
  EXPECT_EQ(parse("the <｜DSML｜ thing</think>a" + kEosText, kReasoning),
            (Parsed{{.reasoning = "the <｜DSML｜ thing", .content = "a"}, true, true}));
}

TEST(ChatParser, KeepsCallsBeforeMalformedMarkup) {
  const std::string good = kBlock.substr(0, kBlock.find("\n</｜DSML｜ calls>"));
  const std::string rest = "\n<｜DSML｜ invoke name=\"g\">\nabc";
  for (const bool strict : {true, false}) {
    EXPECT_EQ(parse("Hi\n\n" + good + rest + kEosText, {.strict = strict}),
              (Parsed{{.content = "Hi" + rest, .tool_calls = {kCall}}, true, true}));
    EXPECT_EQ(parse("Hi\n\n" + kBlock + "more" + kEosText, {.strict = strict}),
              (Parsed{{.content = "Himore", .tool_calls = {kCall}}, true, true}));
  }
  EXPECT_EQ(parse("\n\n" + kBlock + "\n\n" + kBlock + kEosText),
            (Parsed{{.tool_calls = {kCall, kCall}}, false, true}));
}

TEST(ChatParser, MarksInTheWrongPlace) {
  EXPECT_EQ(parse("a</think>b" + kEosText), (Parsed{{.content = "ab"}, true, true}));
  EXPECT_EQ(parse("a</think>b" + kEosText, kStrict),
            (Parsed{{.content = "a</think>b"}, true, true}));
  EXPECT_EQ(parse("<think>r</think>a" + kEosText),
            (Parsed{{.reasoning = "r", .content = "a"}, true, true}));
  EXPECT_EQ(parse("<think>r</think>a" + kEosText, kReasoning),
            (Parsed{{.reasoning = "r", .content = "a"}, false, true}));
  EXPECT_EQ(parse("a" + kEosText + "b").message, (ChatDelta{.content = "a"}));
}

TEST(ChatParser, StopStringsEndTheContent) {
  const auto stop = [](const std::string& text, const std::vector<std::string>& stops) {
    return parse(text, {.in_reasoning = true, .stop = stops});
  };
  EXPECT_EQ(stop("rSTOP</think>abSTOPcd" + kEosText, {"STOP"}),
            (Parsed{{.reasoning = "rSTOP", .content = "ab"}, false, true}));
  EXPECT_EQ(stop("r</think>aaab", {"aab"}),
            (Parsed{{.reasoning = "r", .content = "a"}, false, true}));
  EXPECT_EQ(stop("r</think>xabcx", {"bcd", "abc", "c"}),
            (Parsed{{.reasoning = "r", .content = "x"}, false, true}));
  EXPECT_EQ(stop("r</think>è", {"é"}).message.content, "è");
  EXPECT_EQ(stop("r</think>abSTO", {"STOP"}).message.content, "abSTO");
  EXPECT_EQ(stop("r</think>\n\n" + kBlock + kEosText, {"f", "x"}).message.tool_calls.size(), 1U)
      << "content only";
  for (const std::string bad : {"", "\xff"}) {
    expect_contains(
        error_of([&] { ChatParser({.stop = {"a", bad}}); }, ErrorCode::kInvalidArgument),
        "stop[1]");
  }
}

TEST(ChatParser, TokensThatSpellMarksStayText) {
  const Tokenizer& t = tiny_tokenizer();
  ChatParser parser(kReasoning, &t);
  ChatDelta message;
  for (const int32_t id : t.encode("a</think>", SpecialTokens::kPlain))
    message.append(parser.push_token(id));
  message.append(parser.push_token(*t.added_token("</think>")));
  for (const int32_t id : t.encode("｜DSML｜<think>" + kEosText, SpecialTokens::kPlain)) {
    message.append(parser.push_token(id));
  }
  message.append(parser.push_token(*t.added_token(kEosText)));
  message.append(parser.finish(true));
  EXPECT_EQ(message,
            (ChatDelta{.reasoning = "a</think>", .content = "｜DSML｜<think>" + kEosText}));
  EXPECT_FALSE(parser.malformed());
}

TEST(ChatParser, ReplacesBytesThatAreNotUtf8) {
  EXPECT_EQ(parse_pieces({"a\xff", "\xe6", "\xbc\xa2 \xf9\xfa"}, {}, true).message.content,
            "a\uFFFD漢 \uFFFD\uFFFD");
}

TEST(ChatParser, StreamsContentAsSoonAsItIsCertain) {
  ChatParser parser({});
  EXPECT_EQ(parser.push("Hello").content, "Hello");
  EXPECT_EQ(parser.push("\n").content, "") << "may lead a call";
  EXPECT_EQ(parser.push("w").content, "\nw");
  EXPECT_EQ(parser.push("\n\n" + kBlock).tool_calls.size(), 1U);
}

// Quadratic time would be minutes; seen before: parameters, newlines before the end of reasoning,
// and a long stop string that nearly matches.
TEST(ChatParser, TakesTimeLinearInTheText) {
  const auto start = std::chrono::steady_clock::now();
  std::string call = "<｜DSML｜ invoke name=\"f\">\n";
  for (int i = 0; i < 100'000; ++i) {
    call +=
        fmt::format("<｜DSML｜ parameter name=\"{}\" string=\"true\">x</｜DSML｜ parameter>\n", i);
  }
  EXPECT_EQ(parse_pieces({call + "</｜DSML｜ invoke>\n"}, {}, true).message.tool_calls.size(), 1U);
  const std::string newlines(1'000'000, '\n');
  EXPECT_EQ(parse_pieces({"r" + newlines + "</think>a"}, kReasoning, true).message,
            (ChatDelta{.reasoning = "r", .content = "a"}));
  const std::string letters(2'000'000, 'a');
  EXPECT_EQ(parse_pieces({letters}, {.stop = {std::string(200'000, 'a') + "b"}}, true).message,
            (ChatDelta{.content = letters}));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
}

TEST(ChatParser, ArgumentsCanComeBackInAHistory) {
  // The deepest value that is still JSON, and one level more, which is a string.
  for (const size_t depth : {63U, 64U}) {
    const std::string value = std::string(depth, '[') + std::string(depth, ']');
    const Parsed parsed = parse_pieces(
        {"<｜DSML｜ invoke name=\"f\">\n<｜DSML｜ parameter name=\"a\" string=\"false\">" + value +
         "</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n"},
        {}, true);
    ASSERT_EQ(parsed.message.tool_calls.size(), 1U);
    const JsonValue arguments = parse_json_value(parsed.message.tool_calls[0].arguments, "back");
    EXPECT_EQ(arguments.values[0].is(JsonValue::Kind::kArray), depth == 63);
  }
}

TEST(ChatMessageJson, HasTheFieldsOfAMessage) {
  EXPECT_EQ(
      chat_message_json({.reasoning = "r",
                         .content = "c",
                         .tool_calls = {{.name_space = "n", .name = "f", .arguments = "{}"}}}),
      R"({"role": "assistant", "content": "c", "reasoning_content": "r", "tool_calls": [{"type": )"
      R"("function", "namespace": "n", "function": {"name": "f", "arguments": "{}"}}]})");
}

}  // namespace
}  // namespace deepinfer::text
