#pragma once

#include "text/unicode_classes.h"

namespace deepinfer::text {

/// Cuts text into the pieces that BPE works on: DeepSeek's three isolating splits (numbers, CJK
/// runs, the long alternation; spec/checkpoint.md §3.1) as one pass without a regular expression.
/// Runs of bytes that are not UTF-8 are pieces of their own and end the text before them.
/// Stateless.
class PreTokenizer {
 public:
  PreTokenizer() : classes_(UnicodeClasses::get()) {}

  /// The end of the piece that starts at `begin` < `end`, where a piece must start. Looks at most
  /// one character past the piece and any run of white space it ends in, so a whole text takes
  /// linear time.
  const char* next(const char* begin, const char* end) const;

 private:
  struct Char;
  Char read(const char* at, const char* end) const;
  const char* skip_run(const char* at, const char* end, CharClass char_class) const;
  const char* punctuation(const char* at, const char* end) const;
  const char* white_space(const char* at, const char* end) const;
  const char* other(const char* at, const char* end) const;

  const UnicodeClasses& classes_;
};

}  // namespace deepinfer::text
