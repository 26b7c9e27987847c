#include "text/engram_token_map.h"

#include <utf8proc.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <unordered_map>

#include "base/error.h"
#include "text/unicode_classes.h"
#include "text/utf8.h"

namespace deepinfer::text {
namespace {

// Stands for a lone space while white space is stripped; a private-use character.
constexpr char32_t kLoneSpace = 0xE000;

std::u32string decode_all(std::string_view text) {
  std::u32string result;
  const char* end = text.data() + text.size();
  for (const char* at = text.data(); at < end;) {
    const Utf8Char c = decode_utf8(at, end);
    result.push_back(c.value);
    at += c.length;
  }
  return result;
}

/// utf8proc's mapping of valid UTF-8 under `options`.
std::string map_utf8(std::string_view text, int options) {
  utf8proc_uint8_t* mapped = nullptr;
  const utf8proc_ssize_t size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                             static_cast<utf8proc_ssize_t>(text.size()), &mapped,
                                             static_cast<utf8proc_option_t>(options));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(mapped, &std::free);
  DEEPINFER_CHECK(size >= 0, "utf8proc: {}", utf8proc_errmsg(size));
  return {reinterpret_cast<const char*>(mapped), static_cast<size_t>(size)};
}

/// Lower-cases one character without context. Full and simple mappings differ for one character.
void append_lowercase(char32_t c, std::u32string& out) {
  if (c == 0x130) {
    out += U"i\u0307";
  } else {
    out.push_back(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
  }
}

bool is_mark(char32_t c) {
  const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC ||
         category == UTF8PROC_CATEGORY_ME;
}

bool is_white_space(char32_t c) {
  return UnicodeClasses::get().of(c) == CharClass::kSpace ||
         UnicodeClasses::get().of(c) == CharClass::kNewline;
}

std::string normalize(std::string_view text) {
  const std::string composed =
      map_utf8(text, UTF8PROC_STABLE | UTF8PROC_COMPAT | UTF8PROC_COMPOSE);  // NFKC
  const std::u32string decomposed =
      decode_all(map_utf8(composed, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE));  // NFD
  std::u32string lower;
  for (const char32_t c : decomposed) {
    if (!is_mark(c)) append_lowercase(c, lower);
  }
  std::u32string joined;
  for (const char32_t c : lower) {
    const bool space = c == ' ' || c == '\t' || c == '\r' || c == '\n';
    if (!space) joined.push_back(c);
    if (space && (joined.empty() || joined.back() != ' ')) joined.push_back(' ');
  }
  if (joined == U" ") joined[0] = kLoneSpace;
  size_t first = 0;
  size_t last = joined.size();
  while (first < last && is_white_space(joined[first])) ++first;
  while (last > first && is_white_space(joined[last - 1])) --last;
  std::string result;
  for (size_t i = first; i < last; ++i) {
    append_utf8(joined[i] == kLoneSpace ? U' ' : joined[i], result);
  }
  return result;
}

}  // namespace

std::vector<int32_t> derive_engram_token_map(const Tokenizer& tokenizer) {
  std::unordered_map<std::string, int32_t> known;
  std::vector<int32_t> map;
  map.reserve(static_cast<size_t>(tokenizer.vocab_size()));
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string text = replace_invalid_utf8(tokenizer.token_bytes(id));
    std::string key;
    if (text.find("\uFFFD") != std::string::npos) {
      key = tokenizer.token_piece(id);
    } else {
      key = normalize(text);
      if (key.empty()) key = text;
    }
    map.push_back(known.emplace(std::move(key), static_cast<int32_t>(known.size())).first->second);
  }
  return map;
}

}  // namespace deepinfer::text
