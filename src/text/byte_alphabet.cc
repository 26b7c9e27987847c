#include "text/byte_alphabet.h"

#include <array>

#include "text/utf8.h"

namespace deepinfer::text {
namespace {

constexpr bool stands_for_itself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet {
  std::array<char32_t, 256> characters{};
  std::array<int16_t, 0x144> bytes{};  // by character; -1: not in the alphabet
};

constexpr Alphabet make_alphabet() {
  Alphabet alphabet;
  alphabet.bytes.fill(-1);
  char32_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const char32_t c = stands_for_itself(byte) ? static_cast<char32_t>(byte) : next++;
    alphabet.characters[static_cast<size_t>(byte)] = c;
    alphabet.bytes[c] = static_cast<int16_t>(byte);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = make_alphabet();

}  // namespace

std::string byte_piece(uint8_t byte) {
  std::string piece;
  append_utf8(kAlphabet.characters[byte], piece);
  return piece;
}

std::optional<std::string> bytes_of_piece(std::string_view piece) {
  std::string bytes;
  const char* at = piece.data();
  const char* end = at + piece.size();
  while (at < end) {
    const Utf8Char c = decode_utf8(at, end);
    if (c.value >= kAlphabet.bytes.size() || kAlphabet.bytes[c.value] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(kAlphabet.bytes[c.value]));
    at += c.length;
  }
  return bytes;
}

}  // namespace deepinfer::text
