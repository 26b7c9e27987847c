#include "deepinfer/tokenizer.h"

#include <thread>

#include "golden_cases.h"
#include "test_support.h"

namespace deepinfer::text {
namespace {

using Ids = std::vector<int32_t>;

TEST(Tokenizer, MatchesTinyGoldens) {
  expect_golden_cases(
      tiny_tokenizer(),
      std::filesystem::path(DEEPINFER_SOURCE_DIR) / "tests/data/tokenizer/tiny.json",
      SpecialFlags::kSame);
}

TEST(Tokenizer, KnowsItsVocabulary) {
  const Tokenizer& t = tiny_tokenizer();
  EXPECT_EQ(t.vocab_size(), 4096);
  EXPECT_EQ(t.added_token("<think>"), 4079);
  EXPECT_EQ(t.added_token("<｜begin▁of▁sentence｜>"), 0);
  EXPECT_EQ(t.added_token("the"), std::nullopt);
  EXPECT_EQ(t.added_token(""), std::nullopt);
  EXPECT_EQ(t.token_bytes(4079), "<think>");
  EXPECT_TRUE(t.is_added(4079));
  EXPECT_FALSE(t.is_special(4079));
  EXPECT_TRUE(t.is_special(1));
  const Ids space = t.encode(" ");
  ASSERT_EQ(space.size(), 1U);
  EXPECT_EQ(t.token_bytes(space[0]), " ");
  EXPECT_EQ(t.token_piece(space[0]), "Ġ");
  for (const int32_t id : {-1, 4096, INT32_MAX}) {
    EXPECT_EQ(t.token_bytes(id), "");
    EXPECT_EQ(t.token_piece(id), "");
    EXPECT_FALSE(t.is_added(id) || t.is_special(id));
  }
}

TEST(Tokenizer, EncodesSpellingsOfAddedTokensAsTextWhenPlain) {
  const Tokenizer& t = tiny_tokenizer();
  for (const std::string text : {"<think>", "<｜User｜>", "a</think>b", "<｜end▁of▁sentence｜>"}) {
    SCOPED_TRACE(text);
    const Ids plain = t.encode(text, SpecialTokens::kPlain);
    for (const int32_t id : plain) EXPECT_FALSE(t.is_added(id));
    EXPECT_EQ(t.decode(plain), text);
    EXPECT_LT(t.encode(text).size(), plain.size());
  }
}

TEST(Tokenizer, DecodeLeavesOutSpecialTokensOnlyWhenAsked) {
  const Tokenizer& t = tiny_tokenizer();
  const Ids ids = t.encode("<｜begin▁of▁sentence｜>a<think>b");
  EXPECT_EQ(t.decode(ids), "<｜begin▁of▁sentence｜>a<think>b");
  EXPECT_EQ(t.decode(ids, true), "a<think>b");
}

TEST(Tokenizer, DecodeNamesAnIdOutsideTheVocabulary) {
  for (const int32_t bad : {-1, 4096}) {
    const Ids ids = {5, 6, bad};
    expect_contains(
        error_of([&] { return tiny_tokenizer().decode(ids); }, ErrorCode::kInvalidArgument),
        "index 2");
  }
}

TEST(Tokenizer, EncodesBytesThatAreNotUtf8ByteForByte) {
  const Tokenizer& t = tiny_tokenizer();
  const auto bytes_of = [&](std::string_view text) {
    std::vector<std::string> pieces;
    for (const int32_t id : t.encode(text)) pieces.emplace_back(t.token_bytes(id));
    return pieces;
  };
  // A stray byte, a lone surrogate, an overlong form, a truncated character.
  EXPECT_EQ(bytes_of("\xff"), std::vector<std::string>{"\xff"});
  for (const std::string text :
       {"the\xff\xfe the", "\xed\xa0\x80", "\xc0\xaf", "the\xe6\xbc", "\xf4\x90\x80\x80"}) {
    EXPECT_EQ(t.decode(t.encode(text)), text);
  }
  Ids expected = t.encode("the ");
  const Ids bad = t.encode("\xff");
  expected.insert(expected.end(), bad.begin(), bad.end());
  const Ids rest = t.encode(" and");
  expected.insert(expected.end(), rest.begin(), rest.end());
  EXPECT_EQ(t.encode("the \xff and"), expected)
      << "the text around bad bytes is encoded as if alone";
}

TEST(Tokenizer, PieceCacheNeverChangesIds) {
  const std::filesystem::path model =
      std::filesystem::path(DEEPINFER_SOURCE_DIR) / "models/tiny-v41";
  const Tokenizer none = Tokenizer::load(model, {.cache_pieces = 0});
  const Tokenizer one = Tokenizer::load(model, {.cache_pieces = 1});
  const Tokenizer few = Tokenizer::load(model, {.cache_pieces = 3});
  std::string text;
  for (int i = 0; i < 3000; ++i) {
    text += " word" + std::to_string(i % 77) + std::string(static_cast<size_t>(i % 40), 'a') + "\n";
  }
  const Ids ids = none.encode(text);
  EXPECT_EQ(one.encode(text), ids);
  EXPECT_EQ(few.encode(text), ids);
  EXPECT_EQ(few.encode(text), ids);
  EXPECT_EQ(tiny_tokenizer().encode(text), ids);
}

TEST(Tokenizer, RefusesOptionsOutOfRange) {
  const std::filesystem::path model =
      std::filesystem::path(DEEPINFER_SOURCE_DIR) / "models/tiny-v41";
  for (const int64_t bad : {int64_t{-1}, int64_t{1} << 40}) {
    expect_contains(error_of([&] { Tokenizer::load(model, {.cache_pieces = bad}); },
                             ErrorCode::kInvalidArgument),
                    "cache_pieces");
  }
}

TEST(Tokenizer, NamesTheFileThatIsMissing) {
  expect_contains(error_of([] { Tokenizer::load("/nonexistent"); }, ErrorCode::kNotFound),
                  "/nonexistent/tokenizer.json");
}

TEST(Tokenizer, EncodesTheSameOnManyThreadsAtOnce) {
  const std::string text = "The history of the city, 1234 <think> Привет 你好\n\n";
  const Ids expected = tiny_tokenizer().encode(text);
  std::vector<std::jthread> threads;
  std::vector<int> failures(4);
  for (size_t i = 0; i < failures.size(); ++i) {
    threads.emplace_back([&, i] {
      for (int n = 0; n < 200; ++n) failures[i] += tiny_tokenizer().encode(text) != expected;
    });
  }
  threads.clear();
  EXPECT_EQ(failures, std::vector<int>(4, 0));
}

TEST(ReplaceInvalidUtf8, ReplacesMaximalSubparts) {
  const std::string r = "\uFFFD";
  EXPECT_EQ(replace_invalid_utf8(""), "");
  EXPECT_EQ(replace_invalid_utf8("aé漢😀"), "aé漢😀");
  EXPECT_EQ(replace_invalid_utf8("\xff"), r);
  EXPECT_EQ(replace_invalid_utf8("\xe6\xbc"), r);  // truncated
  EXPECT_EQ(replace_invalid_utf8("\xe6\xbc"
                                 "a"),
            r + "a");
  EXPECT_EQ(replace_invalid_utf8("\xed\xa0\x80"), r + r + r);  // surrogate
  EXPECT_EQ(replace_invalid_utf8("\xc0\xaf"), r + r);          // overlong
  EXPECT_EQ(replace_invalid_utf8("\xf0\x9f\x98\xf0\x9f\x98\x80"), r + "😀");
  EXPECT_EQ(replace_invalid_utf8("\xf4\x90\x80\x80"), r + r + r + r);  // above U+10FFFF
  EXPECT_EQ(replace_invalid_utf8("\xf5"), r);
}

}  // namespace
}  // namespace deepinfer::text
