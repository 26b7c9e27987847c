#include "text/pretokenizer.h"

#include "text/utf8.h"

namespace deepinfer::text {
namespace {

bool is_ascii_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/// Classes at which the first two splits cut: the third sees the text before them as a whole text.
bool ends_gap(CharClass c) {
  return c == CharClass::kNumber || c == CharClass::kCjk || c == CharClass::kIllFormed;
}

}  // namespace

struct PreTokenizer::Char {
  CharClass char_class;
  uint32_t length;
};

inline PreTokenizer::Char PreTokenizer::read(const char* at, const char* end) const {
  const Utf8Char c = decode_utf8(at, end);
  if (c.value > 0x10FFFF) return {CharClass::kIllFormed, c.length};
  return {classes_.of(c.value), c.length};
}

/// Skips the characters of one class from `at`.
inline const char* PreTokenizer::skip_run(const char* at, const char* end,
                                          CharClass char_class) const {
  while (at < end) {
    const Char c = read(at, end);
    if (c.char_class != char_class) break;
    at += c.length;
  }
  return at;
}

const char* PreTokenizer::next(const char* begin, const char* end) const {
  const Char first = read(begin, end);
  const char* after = begin + first.length;
  switch (first.char_class) {
    case CharClass::kWord:  // [\p{L}\p{M}]+
      return skip_run(after, end, CharClass::kWord);
    case CharClass::kCjk:
      return skip_run(after, end, CharClass::kCjk);
    case CharClass::kIllFormed:
      return skip_run(after, end, CharClass::kIllFormed);
    case CharClass::kNumber:  // \p{N}{1,3}
      for (int digits = 1; digits < 3 && after < end; ++digits) {
        const Char c = read(after, end);
        if (c.char_class != CharClass::kNumber) break;
        after += c.length;
      }
      return after;
    case CharClass::kPunctuation:
      // Punctuation of the ASCII range is exactly the set that may lead an ASCII word.
      if (first.length == 1 && after < end && is_ascii_letter(*after)) {
        while (after < end && is_ascii_letter(*after)) ++after;
        return after;
      }
      return punctuation(after, end);
    case CharClass::kSpace:
      if (after < end) {
        const Char c = read(after, end);
        // [^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+
        if (c.char_class == CharClass::kWord) {
          return skip_run(after + c.length, end, CharClass::kWord);
        }
        if (*begin == ' ' && c.char_class == CharClass::kPunctuation) {
          return punctuation(after + c.length, end);
        }
      }
      return white_space(begin, end);
    case CharClass::kNewline:
      return white_space(begin, end);
    case CharClass::kOther:
      return other(after, end);
  }
  return after;
}

/// The rest of ` ?[\p{P}\p{S}]+[\r\n]*` after its first mark.
const char* PreTokenizer::punctuation(const char* at, const char* end) const {
  at = skip_run(at, end, CharClass::kPunctuation);
  while (at < end && (*at == '\r' || *at == '\n')) ++at;
  return at;
}

/// `\s*[\r\n]+`, else `\s+(?!\S)`, else `\s+`, at a run of white space.
const char* PreTokenizer::white_space(const char* at, const char* end) const {
  const char* after_newline = nullptr;
  const char* last = at;  // the last character of the run
  const char* begin = at;
  bool whole = true;  // nothing but the end of the text follows the run
  while (at < end) {
    const Char c = read(at, end);
    if (c.char_class == CharClass::kNewline) {
      after_newline = at + c.length;
    } else if (c.char_class != CharClass::kSpace) {
      whole = ends_gap(c.char_class);
      break;
    }
    last = at;
    at += c.length;
  }
  if (after_newline != nullptr) return after_newline;
  // Before a non-space, the last space is left to the piece that follows, unless it is the only
  // one.
  return whole || last == begin ? at : last;
}

/// After a character of no class: it leads a word if one follows; else it belongs to a piece that
/// no alternative matches, which ends before the next match.
const char* PreTokenizer::other(const char* at, const char* end) const {
  const char* start = at;  // after the latest such character
  for (bool first = true;; first = false) {
    if (at == end) return at;
    const Char c = read(at, end);
    if (c.char_class == CharClass::kWord) {
      if (first) return skip_run(at + c.length, end, CharClass::kWord);
      return start;  // the latest one leads the word
    }
    if (c.char_class != CharClass::kOther) return at;
    start = at;
    at += c.length;
  }
}

}  // namespace deepinfer::text
