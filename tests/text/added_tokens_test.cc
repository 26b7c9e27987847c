#include "text/added_tokens.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace deepinfer::text {
namespace {

std::vector<int32_t> matches(const AddedTokens& tokens, const std::string& text) {
  std::vector<int32_t> ids;
  const char* end = text.data() + text.size();
  for (const char* at = text.data(); at < end;) {
    const AddedTokens::Match match = tokens.next(at, end);
    if (match.begin == end) break;
    ids.push_back(match.id);
    at = match.end;
  }
  return ids;
}

TEST(AddedTokens, FindsLeftmostThenLongest) {
  AddedTokens tokens;
  EXPECT_TRUE(tokens.add("<a>", 1));
  EXPECT_TRUE(tokens.add("<a><b>", 2));
  EXPECT_TRUE(tokens.add("a><b>c", 3));
  EXPECT_FALSE(tokens.add("<a>", 4));
  EXPECT_EQ(matches(tokens, "x<a><b>c"), (std::vector<int32_t>{2}));
  EXPECT_EQ(matches(tokens, "<a><a><b"), (std::vector<int32_t>{1, 1}));
  EXPECT_EQ(matches(tokens, "a><b>c<a"), (std::vector<int32_t>{3}));
  EXPECT_EQ(matches(tokens, "<<a>"), (std::vector<int32_t>{1}));
  EXPECT_EQ(matches(tokens, ""), (std::vector<int32_t>{}));
}

TEST(AddedTokens, FindsNothingWhenEmpty) {
  const AddedTokens tokens;
  EXPECT_EQ(matches(tokens, "<a>"), (std::vector<int32_t>{}));
  EXPECT_EQ(tokens.find(""), std::nullopt);
  EXPECT_EQ(tokens.find("<a>"), std::nullopt);
}

TEST(AddedTokens, FindNeedsTheWholeSpelling) {
  AddedTokens tokens;
  tokens.add("<think>", 7);
  EXPECT_EQ(tokens.find("<think>"), 7);
  EXPECT_EQ(tokens.find("<think"), std::nullopt);
  EXPECT_EQ(tokens.find("<think>x"), std::nullopt);
}

}  // namespace
}  // namespace deepinfer::text
