#include "text/unicode_classes.h"

#include <utf8proc.h>

#include <algorithm>
#include <map>
#include <vector>

namespace deepinfer::text {
namespace {

struct Range {
  char32_t first;
  char32_t last;
  CharClass char_class;
};

constexpr CharClass kWord = CharClass::kWord;
constexpr CharClass kPunct = CharClass::kPunctuation;
constexpr CharClass kNumber = CharClass::kNumber;

/// What Unicode 15.1 and 16.0 added to the 15.0 tables of utf8proc 2.8 (UnicodeData.txt). Assigned
/// code points never change between these classes, so a newer utf8proc agrees with the list.
constexpr Range kAdditions[] = {
    {0x0897, 0x0897, kWord},    {0x1B4E, 0x1B4F, kPunct},    {0x1B7F, 0x1B7F, kPunct},
    {0x1C89, 0x1C8A, kWord},    {0x2427, 0x2429, kPunct},    {0x2FFC, 0x2FFF, kPunct},
    {0x31E4, 0x31E5, kPunct},   {0x31EF, 0x31EF, kPunct},    {0xA7CB, 0xA7CD, kWord},
    {0xA7DA, 0xA7DC, kWord},    {0x105C0, 0x105F3, kWord},   {0x10D40, 0x10D49, kNumber},
    {0x10D4A, 0x10D65, kWord},  {0x10D69, 0x10D6D, kWord},   {0x10D6E, 0x10D6E, kPunct},
    {0x10D6F, 0x10D85, kWord},  {0x10D8E, 0x10D8F, kPunct},  {0x10EC2, 0x10EC4, kWord},
    {0x10EFC, 0x10EFC, kWord},  {0x11380, 0x11389, kWord},   {0x1138B, 0x1138B, kWord},
    {0x1138E, 0x1138E, kWord},  {0x11390, 0x113B5, kWord},   {0x113B7, 0x113C0, kWord},
    {0x113C2, 0x113C2, kWord},  {0x113C5, 0x113C5, kWord},   {0x113C7, 0x113CA, kWord},
    {0x113CC, 0x113D3, kWord},  {0x113D4, 0x113D5, kPunct},  {0x113D7, 0x113D8, kPunct},
    {0x113E1, 0x113E2, kWord},  {0x116D0, 0x116E3, kNumber}, {0x11BC0, 0x11BE0, kWord},
    {0x11BE1, 0x11BE1, kPunct}, {0x11BF0, 0x11BF9, kNumber}, {0x11F5A, 0x11F5A, kWord},
    {0x13460, 0x143FA, kWord},  {0x16100, 0x1612F, kWord},   {0x16130, 0x16139, kNumber},
    {0x16D40, 0x16D6C, kWord},  {0x16D6D, 0x16D6F, kPunct},  {0x16D70, 0x16D79, kNumber},
    {0x18CFF, 0x18CFF, kWord},  {0x1CC00, 0x1CCEF, kPunct},  {0x1CCF0, 0x1CCF9, kNumber},
    {0x1CD00, 0x1CEB3, kPunct}, {0x1E5D0, 0x1E5F0, kWord},   {0x1E5F1, 0x1E5FA, kNumber},
    {0x1E5FF, 0x1E5FF, kPunct}, {0x1F8B2, 0x1F8BB, kPunct},  {0x1F8C0, 0x1F8C1, kPunct},
    {0x1FA89, 0x1FA89, kPunct}, {0x1FA8F, 0x1FA8F, kPunct},  {0x1FABE, 0x1FABE, kPunct},
    {0x1FAC6, 0x1FAC6, kPunct}, {0x1FADC, 0x1FADC, kPunct},  {0x1FADF, 0x1FADF, kPunct},
    {0x1FAE9, 0x1FAE9, kPunct}, {0x1FBCB, 0x1FBEF, kPunct},  {0x2EBF0, 0x2EE5D, kWord},
};

/// White_Space exactly: U+001C–001F, which some tables count as spaces, are not.
bool is_white_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

CharClass classify(char32_t c) {
  if (c == '\r' || c == '\n') return CharClass::kNewline;
  if (is_white_space(c)) return CharClass::kSpace;
  if ((c >= 0x4E00 && c <= 0x9FA5) || (c >= 0x3040 && c <= 0x30FF)) return CharClass::kCjk;
  const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  if (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_ME) return kWord;
  if (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO) return kNumber;
  if (category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_SO) return kPunct;
  return CharClass::kOther;
}

}  // namespace

const UnicodeClasses& UnicodeClasses::get() {
  static const UnicodeClasses classes;
  return classes;
}

UnicodeClasses::UnicodeClasses() {
  std::vector<CharClass> all(0x110000);
  for (char32_t c = 0; c < all.size(); ++c) all[c] = classify(c);
  for (const Range& range : kAdditions) {
    for (char32_t c = range.first; c <= range.last; ++c) all[c] = range.char_class;
  }
  // Equal blocks are stored once: about 200 of the 4,352 differ.
  std::map<Block, uint16_t> known;
  for (size_t i = 0; i < index_.size(); ++i) {
    Block block;
    std::copy_n(all.begin() + static_cast<std::ptrdiff_t>(i * 256), 256, block.begin());
    index_[i] = known.emplace(block, static_cast<uint16_t>(known.size())).first->second;
  }
  blocks_ = std::make_unique<Block[]>(known.size());
  for (const auto& [block, number] : known) blocks_[number] = block;
}

}  // namespace deepinfer::text
