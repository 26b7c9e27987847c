#include "base/json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"

namespace deepinfer {
namespace {

std::string error_of(const std::string& text) {
  try {
    parse_json(text, "here");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidFile);
    return error.what();
  }
  return "";
}

TEST(ParseJson, KeepsKeyOrder) {
  EXPECT_EQ(parse_json(R"({"b":1,"a":[true,null]})", "here").dump(), R"({"b":1,"a":[true,null]})");
}

TEST(ParseJson, RefusesDeepNestingWithoutRecursion) {
  EXPECT_NE(error_of(std::string(2'000'000, '[')).find("nested deeper"), std::string::npos);
}

TEST(ParseJson, RefusesDuplicateKeys) {
  EXPECT_NE(error_of(R"({"a":1,"a":2})").find("\"a\" appears twice"), std::string::npos);
  EXPECT_EQ(error_of(R"([{"a":1},{"a":2}])"), "");
}

TEST(ParseJson, BuildsLargeObjectsInLinearTime) {
  std::string text = "{";
  for (int i = 0; i < 300'000; ++i) text += "\"key" + std::to_string(i) + "\":[1,{}],";
  text.back() = '}';
  EXPECT_EQ(parse_json(text, "here").size(), 300'000U);  // takes minutes when quadratic
}

TEST(ParseJson, NamesSourceAndByteWhenMalformed) {
  EXPECT_EQ(error_of("{\"a\":").substr(0, 30), "here: not valid JSON at byte 6");
  EXPECT_NE(error_of("{\"a\":\"\xff\"}"), "");
  EXPECT_NE(error_of(""), "");
  EXPECT_NE(error_of("1 2"), "");
  EXPECT_EQ(error_of("[1e400]"), "here: not valid JSON at byte 6: number overflow parsing '1e400'");
  EXPECT_EQ(error_of(std::string("1\0x", 3)), "here: not valid JSON at byte 2: a NUL byte");
}

}  // namespace
}  // namespace deepinfer
