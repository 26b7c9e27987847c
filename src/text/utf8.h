#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace deepinfer::text {

/// Not code points: what decode_utf8() says of bytes that are none.
inline constexpr char32_t kIllFormed = 0xFFFFFFFF;   ///< Can never become a character.
inline constexpr char32_t kIncomplete = 0xFFFFFFFE;  ///< The text ends inside a character.

struct Utf8Char {
  char32_t value;   ///< A code point, kIllFormed or kIncomplete.
  uint32_t length;  ///< In bytes; of the maximal ill-formed subpart if there is no character.
};

/// The character at `begin` < `end`. Ill-formed sequences are cut as in the Unicode standard, table
/// 3-8 (maximal subparts), which is what most decoders replace by one U+FFFD.
inline Utf8Char decode_utf8(const char* begin, const char* end) {
  const auto lead = static_cast<uint8_t>(*begin);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xC2 || lead > 0xF4) return {kIllFormed, 1};
  const uint32_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // The second byte's range excludes overlong forms, surrogates and values above U+10FFFF.
  uint8_t low = 0x80;
  uint8_t high = 0xBF;
  if (lead == 0xE0) low = 0xA0;
  if (lead == 0xED) high = 0x9F;
  if (lead == 0xF0) low = 0x90;
  if (lead == 0xF4) high = 0x8F;
  char32_t value = lead & (0x7FU >> length);
  for (uint32_t i = 1; i < length; ++i) {
    if (begin + i == end) return {kIncomplete, i};
    const auto byte = static_cast<uint8_t>(begin[i]);
    if (byte < low || byte > high) return {kIllFormed, i};
    low = 0x80;
    high = 0xBF;
    value = (value << 6) | (byte & 0x3FU);
  }
  return {value, length};
}

/// Takes from a stream of bytes what is certain: whole characters, and U+FFFD for bytes that can no
/// longer become one. The bytes of a begun character, at most three, stay in `pending`.
std::string take_whole_characters(std::string& pending);

/// Appends the UTF-8 form of a code point (a Unicode scalar value).
void append_utf8(char32_t value, std::string& text);

}  // namespace deepinfer::text
