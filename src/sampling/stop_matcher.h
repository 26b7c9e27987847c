#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace deepinfer::sampling {

/// Finds the first stop string in a text that comes in pieces, and never lets go of text that could
/// still be the start of one. Of several occurrences the one that ends first counts; of those that
/// end at the same byte, the longest. What it returns, joined, is the same for every way to split
/// the text. An Aho-Corasick automaton: linear in the text, O(bytes of all stop strings) memory.
/// Owned by one thread.
class StopMatcher {
 public:
  struct Piece {
    std::string text;      ///< What can no longer be part of a stop string.
    bool matched = false;  ///< `text` ends right before a stop string: the output is complete.
  };

  /// `stops`: none may be empty; none at all: nothing is held back.
  explicit StopMatcher(std::span<const std::string> stops);

  /// Takes more text. After a match every further piece is {"", true}.
  Piece feed(std::string_view text);
  /// The text ends here without a match: what is held back. Empty after a match.
  std::string flush();

 private:
  /// A prefix of one or more stop strings. Node 0 is the empty one.
  struct Node {
    int32_t first_child = -1;
    int32_t next_sibling = -1;
    int32_t suffix = 0;   // the longest proper suffix that is a node
    int32_t depth = 0;    // bytes
    int32_t matched = 0;  // bytes of the longest stop string that the prefix ends with; 0: none
    char byte = 0;        // the prefix's last
  };

  int32_t child_of(int32_t node, char byte) const;
  int32_t next(int32_t node, char byte) const;
  void insert(std::string_view stop);
  void link_suffixes();
  std::string release(size_t bytes);

  std::vector<Node> nodes_;
  int32_t node_ = 0;     // the longest prefix that the text so far ends with
  std::string pending_;  // pending_[begin_…] is held back: the text of node_
  size_t begin_ = 0;
  bool matched_ = false;
};

}  // namespace deepinfer::sampling
