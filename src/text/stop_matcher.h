#pragma once

#include <string>
#include <vector>

namespace deepinfer::text {

/// Ends a stream of text where a stop string begins. Text that may be the beginning of one is held
/// back; no more than the longest stop string's length.
class StopMatcher {
 public:
  /// Stop strings are not empty. Errors: kInvalidArgument if one is, or is not UTF-8.
  explicit StopMatcher(std::vector<std::string> stops);

  /// Appends to `out` what became certain with this byte. True if a stop string ended here: it and
  /// all that follows are no part of the text.
  bool push(char byte, std::string& out);
  /// Appends the rest.
  void finish(std::string& out);

 private:
  struct Pattern {
    std::string text;
    std::vector<size_t> fallback;  // Knuth-Morris-Pratt: the longest border of each prefix
    size_t matched = 0;
  };

  std::vector<Pattern> patterns_;
  std::string held_;  // begins with `released_` bytes that were given out
  size_t released_ = 0;
};

}  // namespace deepinfer::text
