#include "text/utf8.h"

#include <string_view>

#include "deepinfer/tokenizer.h"

namespace deepinfer {
namespace text {

void append_utf8(char32_t value, std::string& text) {
  const auto put = [&](char32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (value < 0x80) {
    put(value);
  } else if (value < 0x800) {
    put(0xC0 | (value >> 6));
    put(0x80 | (value & 0x3F));
  } else if (value < 0x10000) {
    put(0xE0 | (value >> 12));
    put(0x80 | ((value >> 6) & 0x3F));
    put(0x80 | (value & 0x3F));
  } else {
    put(0xF0 | (value >> 18));
    put(0x80 | ((value >> 12) & 0x3F));
    put(0x80 | ((value >> 6) & 0x3F));
    put(0x80 | (value & 0x3F));
  }
}

std::string take_whole_characters(std::string& pending) {
  // Only the last three bytes can be a character that goes on.
  const size_t size = pending.size();
  size_t held = 0;
  for (size_t back = 1; back <= 3 && back <= size; ++back) {
    const char* at = pending.data() + size - back;
    if (decode_utf8(at, pending.data() + size).value == kIncomplete) held = back;
  }
  std::string ready = replace_invalid_utf8(std::string_view(pending).substr(0, size - held));
  pending.erase(0, size - held);
  return ready;
}

}  // namespace text

std::string replace_invalid_utf8(std::string_view bytes) {
  std::string result;
  result.reserve(bytes.size());
  const char* at = bytes.data();
  const char* end = at + bytes.size();
  while (at < end) {
    const text::Utf8Char c = text::decode_utf8(at, end);
    if (c.value == text::kIllFormed || c.value == text::kIncomplete) {
      text::append_utf8(0xFFFD, result);
    } else {
      result.append(at, c.length);
    }
    at += c.length;
  }
  return result;
}

}  // namespace deepinfer
