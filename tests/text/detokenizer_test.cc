#include "test_support.h"

namespace deepinfer::text {
namespace {

TEST(IncrementalDetokenizer, HoldsBackUnfinishedCharacters) {
  const Tokenizer& t = tiny_tokenizer();
  IncrementalDetokenizer detokenizer(t);
  // 😀 is four byte tokens in the tiny vocabulary.
  const std::vector<int32_t> ids = t.encode("😀");
  ASSERT_GE(ids.size(), 2U);
  for (size_t i = 0; i + 1 < ids.size(); ++i) EXPECT_EQ(detokenizer.push(ids[i]), "");
  EXPECT_EQ(detokenizer.push(ids.back()), "😀");
  EXPECT_EQ(detokenizer.finish(), "");
}

TEST(IncrementalDetokenizer, ReplacesBytesOnceTheyCannotBecomeACharacter) {
  const Tokenizer& t = tiny_tokenizer();
  IncrementalDetokenizer detokenizer(t);
  const int32_t lead = t.encode("\xe6")[0];
  const int32_t continuation = t.encode("\xbc")[0];
  const int32_t letter = t.encode("a")[0];
  EXPECT_EQ(detokenizer.push(lead), "");
  EXPECT_EQ(detokenizer.push(continuation), "");
  EXPECT_EQ(detokenizer.push(letter), "\uFFFDa");
  EXPECT_EQ(detokenizer.push(continuation), "\uFFFD");
  EXPECT_EQ(detokenizer.push(lead), "");
  EXPECT_EQ(detokenizer.finish(), "\uFFFD");
  EXPECT_EQ(detokenizer.finish(), "");
}

TEST(IncrementalDetokenizer, SkipsSpecialTokensWhenAsked) {
  const Tokenizer& t = tiny_tokenizer();
  IncrementalDetokenizer skipping(t, true);
  IncrementalDetokenizer keeping(t, false);
  EXPECT_EQ(skipping.push(1), "");
  EXPECT_EQ(keeping.push(1), "<｜end▁of▁sentence｜>");
  EXPECT_EQ(skipping.push(4080), "</think>") << "not marked as special";
}

TEST(IncrementalDetokenizer, IgnoresIdsOutsideTheVocabulary) {
  IncrementalDetokenizer detokenizer(tiny_tokenizer());
  EXPECT_EQ(detokenizer.push(-1), "");
  EXPECT_EQ(detokenizer.push(4096), "");
  EXPECT_EQ(detokenizer.finish(), "");
}

}  // namespace
}  // namespace deepinfer::text
