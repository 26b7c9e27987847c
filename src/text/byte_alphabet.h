#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace deepinfer::text {

/// GPT-2's byte alphabet: printable bytes stand for themselves (as Latin-1 characters), the others
/// for U+0100, U+0101, … in order. Vocabulary pieces are spelled in it.

/// The spelling of one byte.
std::string byte_piece(uint8_t byte);
/// The bytes that a piece spells; nothing if it has a character outside the alphabet.
std::optional<std::string> bytes_of_piece(std::string_view piece);

}  // namespace deepinfer::text
