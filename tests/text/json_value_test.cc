#include "text/json_value.h"

#include <chrono>

#include "test_support.h"

namespace deepinfer::text {
namespace {

std::string round_trip(const std::string& text) {
  return to_python_json(parse_json_value(text, "here"));
}

TEST(JsonValue, WritesWhatPythonWrites) {
  // Left: input; right: json.dumps(json.loads(input), ensure_ascii=False) of CPython 3.11.
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"b":1,"a":[true,false,null]})", R"({"b": 1, "a": [true, false, null]})"},
      {"[]", "[]"},
      {"{}", "{}"},
      {"[1,-1,0,-0]", "[1, -1, 0, 0]"},
      {"123456789012345678901234567890", "123456789012345678901234567890"},
      {"-123456789012345678901234567890", "-123456789012345678901234567890"},
      {"18446744073709551615", "18446744073709551615"},
      {"18446744073709551616", "18446744073709551616"},
      {"1.0", "1.0"},
      {"1.10", "1.1"},
      {"-0.0", "-0.0"},
      {"1e5", "100000.0"},
      {"1E15", "1000000000000000.0"},
      {"1e16", "1e+16"},
      {"1e-4", "0.0001"},
      {"1e-5", "1e-05"},
      {"1.5e300", "1.5e+300"},
      {"0.1", "0.1"},
      {"2.5e-7", "2.5e-07"},
      {"5e-324", "5e-324"},
      {"123456789012345680.0", "1.2345678901234568e+17"},
      {R"("\u00e9\u4f60\ud83d\ude00")", "\"é你😀\""},
      {R"("\"\\\/\b\f\n\r\t\u0000\u001f\u007f")", "\"\\\"\\\\/\\b\\f\\n\\r\\t\\u0000\\u001f\x7f\""},
  };
  for (const auto& [input, expected] : cases) EXPECT_EQ(round_trip(input), expected) << input;
}

TEST(JsonValue, RefusesWhatIsNotJson) {
  for (const std::string bad :
       {"", "{", "[1,]", "{\"a\":1,}", "nan", "1 2", "'a'", "\"\xff\"", "01", "\"\\ud83d\"",
        "\"\\udc00x\"", "\"\\ud83d\\u0041\"", "1e999"}) {
    SCOPED_TRACE(bad);
    expect_contains(error_of([&] { parse_json_value(bad, "here"); }, ErrorCode::kInvalidFile),
                    "here");
  }
}

TEST(JsonValue, ErrorsSayWhatAndWhereWithoutTheParsersIds) {
  for (const std::string bad : {"1e999", "[-1e400]", "[1,]", "\"\xff\""}) {
    const std::string what =
        error_of([&] { parse_json_value(bad, "here"); }, ErrorCode::kInvalidFile);
    EXPECT_TRUE(what.starts_with("here: not valid JSON at byte ")) << what;
    EXPECT_EQ(what.find("exception"), std::string::npos) << what;
  }
}

TEST(JsonValue, RefusesBytesThatTheParserBelowIgnores) {
  for (const std::string& bad :
       {std::string("1\0", 2), std::string("1\0x", 3), std::string("\0", 1),
        std::string("\xEF\xBB\xBF"
                    "1")}) {
    error_of([&] { parse_json_value(bad, "here"); }, ErrorCode::kInvalidFile);
  }
}

TEST(JsonValue, RefusesDuplicateKeysAndDeepNesting) {
  expect_contains(
      error_of([] { parse_json_value(R"({"a":1,"a":2})", "x"); }, ErrorCode::kInvalidFile),
      "\"a\" appears twice");
  expect_contains(
      error_of([] { parse_json_value(std::string(1'000'000, '['), "x"); }, ErrorCode::kInvalidFile),
      "deeper than 64");
  parse_json_value(std::string(64, '[') + std::string(64, ']'), "x");
}

TEST(JsonValue, ParsesHugeObjectsInLinearTime) {
  std::string text = "{";
  for (int i = 0; i < 200'000; ++i) text += fmt::format("{}\"{}\":{}", i == 0 ? "" : ",", i, i);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(parse_json_value(text + "}", "x").values.size(), 200'000U);
  // Quadratic time would be minutes.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

TEST(JsonValue, EditsMembersInPlace) {
  JsonValue value = parse_json_value(R"({"a":1,"b":2,"c":3})", "x");
  value.set("b", JsonValue::string("two"));
  value.set("d", JsonValue::object());
  value.erase("a");
  value.erase("absent");
  EXPECT_EQ(to_python_json(value), R"({"b": "two", "c": 3, "d": {}})");
  EXPECT_EQ(value.find("a"), nullptr);
}

}  // namespace
}  // namespace deepinfer::text
