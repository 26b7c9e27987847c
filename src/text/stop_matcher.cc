#include "text/stop_matcher.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "deepinfer/tokenizer.h"

namespace deepinfer::text {
namespace {

std::vector<size_t> borders_of(const std::string& text) {
  std::vector<size_t> borders(text.size() + 1, 0);
  for (size_t i = 1; i < text.size(); ++i) {
    size_t k = borders[i];
    while (k > 0 && text[k] != text[i]) k = borders[k];
    borders[i + 1] = text[k] == text[i] ? k + 1 : 0;
  }
  return borders;
}

}  // namespace

StopMatcher::StopMatcher(std::vector<std::string> stops) {
  for (size_t i = 0; i < stops.size(); ++i) {
    if (stops[i].empty() || replace_invalid_utf8(stops[i]) != stops[i]) {
      fail(ErrorCode::kInvalidArgument, "stop[{}] is {}, expected text in UTF-8", i,
           stops[i].empty() ? "empty" : "no valid UTF-8");
    }
    std::vector<size_t> borders = borders_of(stops[i]);
    patterns_.push_back({.text = std::move(stops[i]), .fallback = std::move(borders)});
  }
}

bool StopMatcher::push(char byte, std::string& out) {
  held_.push_back(byte);
  size_t longest = 0;
  size_t stop = 0;
  for (Pattern& p : patterns_) {
    while (p.matched > 0 && p.text[p.matched] != byte) p.matched = p.fallback[p.matched];
    if (p.text[p.matched] == byte) ++p.matched;
    if (p.matched == p.text.size()) {
      stop = std::max(stop, p.matched);
      p.matched = 0;  // nothing is pushed after a stop
    }
    longest = std::max(longest, p.matched);
  }
  const size_t end = held_.size() - (stop > 0 ? stop : longest);
  out.append(held_, released_, end - released_);
  released_ = end;
  // Moving the rest down only when it is the smaller part costs constant time per byte.
  if (2 * released_ >= held_.size()) held_.erase(0, std::exchange(released_, 0));
  return stop > 0;
}

void StopMatcher::finish(std::string& out) {
  out.append(held_, released_);
  held_.clear();
  released_ = 0;
}

}  // namespace deepinfer::text
