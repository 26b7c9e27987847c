#include <gtest/gtest.h>
// gtest comes first: rapidcheck's glue needs it.
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "test_support.h"

namespace deepinfer::text {
namespace {

/// Text made of what the pre-tokeniser and the special parsing look at, and of arbitrary bytes.
rc::Gen<std::string> any_text() {
  const auto fragment = rc::gen::oneOf(
      rc::gen::elementOf(std::vector<std::string>{
          " ",      "  ",     "\n",      "\r",       "\t",         "a",    "the",     "The", "'s",
          "!",      "...",    "12345",   "é",        "\u0301",     "漢字", "か",      "한",  "😀",
          "\u200d", "\u3000", "<think>", "</think>", "<｜User｜>", "<｜",  "｜DSML｜"}),
      rc::gen::arbitrary<std::string>(),
      rc::gen::map(rc::gen::arbitrary<uint8_t>(),
                   [](uint8_t byte) { return std::string(1, static_cast<char>(byte)); }));
  return rc::gen::map(rc::gen::container<std::vector<std::string>>(fragment),
                      [](const std::vector<std::string>& parts) {
                        std::string text;
                        for (const std::string& part : parts) text += part;
                        return text;
                      });
}

RC_GTEST_PROP(Tokenizer, DecodeInvertsEncode, ()) {
  const std::string text = *any_text();
  const Tokenizer& t = tiny_tokenizer();
  RC_ASSERT(t.decode(t.encode(text)) == text);
  RC_ASSERT(t.decode(t.encode(text, SpecialTokens::kPlain)) == text);
}

RC_GTEST_PROP(IncrementalDetokenizer, EqualsDecodingAtOnce, (bool skip_special)) {
  const Tokenizer& t = tiny_tokenizer();
  const auto ids = *rc::gen::container<std::vector<int32_t>>(
      rc::gen::oneOf(rc::gen::inRange<int32_t>(0, static_cast<int32_t>(t.vocab_size())),
                     rc::gen::inRange<int32_t>(0, 260)));  // the first ids are bytes and specials
  IncrementalDetokenizer detokenizer(t, skip_special);
  std::string text;
  for (const int32_t id : ids) {
    const std::string delta = detokenizer.push(id);
    RC_ASSERT(replace_invalid_utf8(delta) == delta);
    text += delta;
  }
  text += detokenizer.finish();
  RC_ASSERT(text == replace_invalid_utf8(t.decode(ids, skip_special)));
}

}  // namespace
}  // namespace deepinfer::text
