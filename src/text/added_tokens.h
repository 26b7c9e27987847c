#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace deepinfer::text {

/// The spellings of added tokens as a trie that finds them in text, leftmost and longest first.
class AddedTokens {
 public:
  AddedTokens();

  /// Adds a non-empty spelling. False, without effect, if it is known.
  bool add(std::string_view text, int32_t id);
  std::optional<int32_t> find(std::string_view text) const;

  struct Match {
    const char* begin;  ///< `end` of the text if there is none.
    const char* end;
    int32_t id;
  };
  /// The first added token in [begin, end).
  Match next(const char* begin, const char* end) const;

 private:
  struct Node {
    int32_t first_child = -1;
    int32_t sibling = -1;
    int32_t id = -1;  ///< Of the token whose spelling ends here.
    char byte = 0;
  };

  int32_t child(int32_t node, char byte) const;

  std::vector<Node> nodes_;
  std::array<bool, 256> starts_{};  ///< The first bytes of spellings.
};

}  // namespace deepinfer::text
