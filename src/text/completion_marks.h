#pragma once

#include <string>
#include <string_view>

namespace deepinfer::text {

// A completion is read as a sequence of bytes in which these stand for the marks of the format.
// They never occur in UTF-8, so text that merely spells a mark cannot be taken for one.
inline constexpr char kMarkThink = '\xF8';
inline constexpr char kMarkEndThink = '\xF9';
inline constexpr char kMarkDsml = '\xFA';
inline constexpr char kMarkEos = '\xFB';
inline constexpr char kMarkBos = '\xFC';

constexpr bool is_mark(char c) {
  return c >= kMarkThink && c <= kMarkBos;
}

/// Text with marks spelled out.
std::string spell_marks(std::string_view symbols);
/// The spelling of one mark.
std::string_view spelling_of(char mark);

/// Finds marks by their spelling in a stream of text.
class MarkFinder {
 public:
  /// The symbols that became certain with this text (valid UTF-8, whole characters).
  std::string push(std::string_view text);
  /// The rest, which is no mark.
  std::string finish();

 private:
  std::string pending_;  // a proper prefix of a mark's spelling
};

}  // namespace deepinfer::text
