#pragma once

#include <array>
#include <cstdint>
#include <memory>

namespace deepinfer::text {

/// The classes of characters that the pre-tokeniser tells apart (spec/checkpoint.md §3.1).
enum class CharClass : uint8_t {
  kOther,        ///< Controls, format characters, unassigned, private use.
  kWord,         ///< \p{L} and \p{M}, except kCjk.
  kPunctuation,  ///< \p{P} and \p{S}, except kCjk.
  kSpace,        ///< White_Space, except kNewline.
  kNewline,      ///< CR and LF.
  kNumber,       ///< \p{N}.
  kCjk,          ///< U+4E00–9FA5, U+3040–309F, U+30A0–30FF, whatever their category.
  kIllFormed,    ///< Bytes that are not UTF-8; never in the table.
};

/// A two-stage table: class of code point c = blocks[index[c / 256]][c % 256]. Unicode 16, which is
/// what the released tokenizer's regular expressions see.
class UnicodeClasses {
 public:
  /// Built on first use (about 10 ms), shared by all tokenizers. Any thread.
  static const UnicodeClasses& get();

  CharClass of(char32_t code_point) const {
    return blocks_[index_[code_point >> 8]][code_point & 0xFF];
  }

 private:
  UnicodeClasses();

  using Block = std::array<CharClass, 256>;
  std::array<uint16_t, 0x1100> index_{};
  std::unique_ptr<Block[]> blocks_;
};

}  // namespace deepinfer::text
