#include "text/pretokenizer.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace deepinfer::text {
namespace {

std::vector<std::string> split(const std::string& text) {
  const PreTokenizer pre_tokenizer;
  std::vector<std::string> pieces;
  const char* end = text.data() + text.size();
  for (const char* at = text.data(); at < end;) {
    const char* next = pre_tokenizer.next(at, end);
    pieces.emplace_back(at, next);
    at = next;
  }
  return pieces;
}

using Pieces = std::vector<std::string>;

TEST(PreTokenizer, CutsNumbersIntoThrees) {
  EXPECT_EQ(split("1234567"), (Pieces{"123", "456", "7"}));
  EXPECT_EQ(split("a12b"), (Pieces{"a", "12", "b"}));
  EXPECT_EQ(split("٣Ⅷ½²"), (Pieces{"٣Ⅷ½", "²"}));
}

TEST(PreTokenizer, CutsCjkRuns) {
  EXPECT_EQ(split("你好world"), (Pieces{"你好", "world"}));
  EXPECT_EQ(split("カ・か゛"), (Pieces{"カ・か゛"}));
  EXPECT_EQ(split("한국"), (Pieces{"한국"}));
  EXPECT_EQ(split("!漢"), (Pieces{"!", "漢"}));
  EXPECT_EQ(split(" 漢"), (Pieces{" ", "漢"}));
  EXPECT_EQ(split("龥龦"), (Pieces{"龥", "龦"})) << "the range ends at U+9FA5";
}

TEST(PreTokenizer, LeadsWordsWithOneCharacter) {
  EXPECT_EQ(split("don't"), (Pieces{"don", "'t"}));
  EXPECT_EQ(split("a!!b"), (Pieces{"a", "!!", "b"}));
  EXPECT_EQ(split("$été"), (Pieces{"$", "été"})) << "only ASCII letters join ASCII punctuation";
  EXPECT_EQ(split("$eté"), (Pieces{"$et", "é"}));
  EXPECT_EQ(split("«mot»"), (Pieces{"«", "mot", "»"}));
  EXPECT_EQ(split("\tmot"), (Pieces{"\tmot"}));
  EXPECT_EQ(split("\nmot"), (Pieces{"\n", "mot"}));
  EXPECT_EQ(split("\u00a0mot"), (Pieces{"\u00a0mot"}));
  EXPECT_EQ(split("\u200dmot"), (Pieces{"\u200dmot"}));
  EXPECT_EQ(split(" \u0301"), (Pieces{" \u0301"}));
}

TEST(PreTokenizer, JoinsPunctuationAndNewlines) {
  EXPECT_EQ(split("a ...\n\nb"), (Pieces{"a", " ...\n\n", "b"}));
  EXPECT_EQ(split("\t!"), (Pieces{"\t", "!"})) << "only a space leads punctuation";
  EXPECT_EQ(split("!\r\n "), (Pieces{"!\r\n", " "}));
}

TEST(PreTokenizer, CutsWhiteSpace) {
  EXPECT_EQ(split("a  b"), (Pieces{"a", " ", " b"}));
  EXPECT_EQ(split("a   "), (Pieces{"a", "   "}));
  EXPECT_EQ(split("a   1"), (Pieces{"a", "   ", "1"})) << "numbers were cut off before";
  EXPECT_EQ(split("a   漢"), (Pieces{"a", "   ", "漢"}));
  EXPECT_EQ(split("a \n \n  b"), (Pieces{"a", " \n \n", " ", " b"}));
  EXPECT_EQ(split(" \n\n"), (Pieces{" \n\n"}));
  EXPECT_EQ(split("\x1c\x1c"), (Pieces{"\x1c\x1c"})) << "U+001C is no white space";
  EXPECT_EQ(split("\t\x01"), (Pieces{"\t", "\x01"}));
}

TEST(PreTokenizer, KeepsUnmatchedCharactersTogether) {
  EXPECT_EQ(split("\x01\x02\x03"), (Pieces{"\x01\x02\x03"}));
  EXPECT_EQ(split("\x01\x02z"), (Pieces{"\x01", "\x02z"}));
  EXPECT_EQ(split("\x01!"), (Pieces{"\x01", "!"}));
  EXPECT_EQ(split("\x01\x02 a"), (Pieces{"\x01\x02", " a"}));
}

TEST(PreTokenizer, IsolatesBytesThatAreNotUtf8) {
  EXPECT_EQ(split("a\xff\xfe z"), (Pieces{"a", "\xff\xfe", " z"}));
  EXPECT_EQ(split("a  \xff"), (Pieces{"a", "  ", "\xff"}));
  EXPECT_EQ(split("\xe6\xbc\xc0"), (Pieces{"\xe6\xbc\xc0"}));
}

TEST(PreTokenizer, KnowsUnicode16) {
  EXPECT_EQ(split("\U00010D50\U00010D51"), (Pieces{"\U00010D50\U00010D51"}));  // Garay letters
  EXPECT_EQ(split(" \U00010D50"), (Pieces{" \U00010D50"}));
  EXPECT_EQ(split("a\U00010D40"), (Pieces{"a", "\U00010D40"}));  // a Garay digit
  EXPECT_EQ(split("\U0002EBF0"), (Pieces{"\U0002EBF0"}));
  EXPECT_EQ(split(" \u2FFC"), (Pieces{" \u2FFC"}));  // a symbol of 15.1
}

}  // namespace
}  // namespace deepinfer::text
