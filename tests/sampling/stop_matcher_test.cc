#include "sampling/stop_matcher.h"

#include <gtest/gtest.h>
// gtest comes first: rapidcheck's glue needs it.
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <optional>

namespace deepinfer::sampling {
namespace {

using Strings = std::vector<std::string>;

struct Result {
  std::string text;
  bool matched = false;
  bool operator==(const Result&) const = default;
};

Result run(const Strings& stops, const Strings& pieces) {
  StopMatcher matcher(stops);
  Result result;
  for (const std::string& text : pieces) {
    const StopMatcher::Piece piece = matcher.feed(text);
    result.text += piece.text;
    result.matched = piece.matched;
  }
  result.text += matcher.flush();
  return result;
}

Result run_whole(const Strings& stops, const std::string& text) {
  return run(stops, Strings{text});
}

TEST(StopMatcher, PassesEverythingWithoutStops) {
  StopMatcher matcher({});
  EXPECT_EQ(matcher.feed("abc").text, "abc");
  EXPECT_EQ(matcher.flush(), "");
}

TEST(StopMatcher, HoldsBackExactlyWhatCouldStartAStop) {
  const Strings stops = {"END"};
  StopMatcher matcher(stops);
  EXPECT_EQ(matcher.feed("the E").text, "the ");
  EXPECT_EQ(matcher.feed("N").text, "");
  EXPECT_EQ(matcher.feed("E").text, "EN") << "the match failed, but a new one may begin";
  EXPECT_EQ(matcher.feed("x").text, "Ex");
  EXPECT_EQ(matcher.feed("EN").text, "");
  EXPECT_EQ(matcher.flush(), "EN") << "the text ended";
}

TEST(StopMatcher, StopsForGoodAtTheMatch) {
  const Strings stops = {"END"};
  StopMatcher matcher(stops);
  EXPECT_FALSE(matcher.feed("a E").matched);
  const StopMatcher::Piece piece = matcher.feed("ND and more");
  EXPECT_TRUE(piece.matched);
  EXPECT_EQ(piece.text, "");
  EXPECT_TRUE(matcher.feed("x").matched);
  EXPECT_EQ(matcher.feed("x").text, "");
  EXPECT_EQ(matcher.flush(), "");
}

TEST(StopMatcher, TakesTheMatchThatEndsFirstThenTheLongest) {
  EXPECT_EQ(run_whole({"cd", "bcd"}, "abcde"), (Result{"a", true}));
  EXPECT_EQ(run_whole({"abcde", "c"}, "abcde"), (Result{"ab", true}));
  EXPECT_EQ(run_whole({"abcx", "bc"}, "abcy"), (Result{"a", true}));
  EXPECT_EQ(run_whole({"aa"}, "baaa"), (Result{"b", true}));
  EXPECT_EQ(run_whole({"é", "\n\n"}, "né\n\n"), (Result{"n", true}));
  EXPECT_EQ(run_whole({std::string("\0x", 2)}, std::string("a\0\0xb", 5)),
            (Result{std::string("a\0", 2), true}));
}

TEST(StopMatcher, IsLinearInTextAndStops) {
  // Every byte of this text nearly completes the stop; quadratic work would take minutes.
  const Strings stops = {std::string(4096, 'a') + "b", std::string(4095, 'a') + "c"};
  StopMatcher matcher(stops);
  const std::string text(1'000'000, 'a');
  size_t released = 0;
  for (size_t i = 0; i < text.size(); i += 10) {
    released += matcher.feed(std::string_view(text).substr(i, 10)).text.size();
  }
  EXPECT_EQ(released, text.size() - 4096);
  EXPECT_TRUE(matcher.feed("b").matched);
}

/// Few different letters, so that overlaps are common.
rc::Gen<std::string> text_of(const char* letters) {
  return rc::gen::container<std::string>(rc::gen::elementOf(std::string(letters)));
}

Result search(const Strings& stops, const std::string& text) {
  for (size_t end = 1; end <= text.size(); ++end) {
    std::optional<size_t> begin;
    for (const std::string& stop : stops) {
      if (text.substr(0, end).ends_with(stop)) {
        begin = std::min(begin.value_or(end), end - stop.size());
      }
    }
    if (begin) return {text.substr(0, *begin), true};
  }
  return {text, false};
}

RC_GTEST_PROP(StopMatcher, EqualsSearchingForEverySplit, ()) {
  const auto stops = *rc::gen::container<Strings>(rc::gen::nonEmpty(text_of("abc")));
  const auto pieces = *rc::gen::container<Strings>(text_of("aabc"));
  std::string text;
  for (const std::string& piece : pieces) text += piece;
  const Result want = search(stops, text);
  RC_ASSERT(run(stops, pieces) == want);
  RC_ASSERT(run_whole(stops, text) == want);
  Strings bytes;
  for (const char byte : text) bytes.emplace_back(1, byte);
  RC_ASSERT(run(stops, bytes) == want);
}

RC_GTEST_PROP(StopMatcher, HoldsBackTheLongestBeginningOfAStop, ()) {
  const auto stops = *rc::gen::container<Strings>(rc::gen::nonEmpty(text_of("ab")));
  const auto text = *text_of("ab");
  RC_PRE(!search(stops, text).matched);
  size_t held = 0;
  for (const std::string& stop : stops) {
    for (size_t n = 1; n < stop.size(); ++n) {
      if (text.ends_with(stop.substr(0, n))) held = std::max(held, n);
    }
  }
  StopMatcher matcher(stops);
  RC_ASSERT(matcher.feed(text).text == text.substr(0, text.size() - held));
}

}  // namespace
}  // namespace deepinfer::sampling
