#include "sampling/stop_matcher.h"

#include "base/error.h"

namespace deepinfer::sampling {

StopMatcher::StopMatcher(std::span<const std::string> stops) : nodes_(1) {
  for (const std::string& stop : stops) insert(stop);
  link_suffixes();
}

StopMatcher::Piece StopMatcher::feed(std::string_view text) {
  if (matched_) return {.text = "", .matched = true};
  size_t end = pending_.size();
  pending_ += text;
  for (const char byte : text) {
    ++end;
    node_ = next(node_, byte);
    const Node& node = nodes_[static_cast<size_t>(node_)];
    if (node.matched == 0) continue;
    matched_ = true;
    Piece piece{.text = release(end - begin_ - static_cast<size_t>(node.matched)), .matched = true};
    pending_.clear();
    begin_ = 0;
    return piece;
  }
  const auto held = static_cast<size_t>(nodes_[static_cast<size_t>(node_)].depth);
  return {.text = release(pending_.size() - begin_ - held), .matched = false};
}

std::string StopMatcher::flush() {
  node_ = 0;
  return release(pending_.size() - begin_);
}

int32_t StopMatcher::child_of(int32_t node, char byte) const {
  int32_t child = nodes_[static_cast<size_t>(node)].first_child;
  while (child >= 0 && nodes_[static_cast<size_t>(child)].byte != byte) {
    child = nodes_[static_cast<size_t>(child)].next_sibling;
  }
  return child;
}

int32_t StopMatcher::next(int32_t node, char byte) const {
  // Each step down the suffixes takes back a byte of depth that an earlier byte of text gave.
  while (true) {
    const int32_t child = child_of(node, byte);
    if (child >= 0) return child;
    if (node == 0) return 0;
    node = nodes_[static_cast<size_t>(node)].suffix;
  }
}

void StopMatcher::insert(std::string_view stop) {
  DEEPINFER_CHECK(!stop.empty(), "empty stop string");
  int32_t node = 0;
  for (const char byte : stop) {
    int32_t child = child_of(node, byte);
    if (child < 0) {
      child = static_cast<int32_t>(nodes_.size());
      Node& parent = nodes_[static_cast<size_t>(node)];
      const Node fresh{.next_sibling = parent.first_child, .depth = parent.depth + 1, .byte = byte};
      parent.first_child = child;
      nodes_.push_back(fresh);
    }
    node = child;
  }
  nodes_[static_cast<size_t>(node)].matched = static_cast<int32_t>(stop.size());
}

/// Breadth first: the suffix of a node is shorter, so it has its own already.
void StopMatcher::link_suffixes() {
  std::vector<int32_t> queue = {0};
  for (size_t i = 0; i < queue.size(); ++i) {
    const int32_t parent = queue[i];
    int32_t child = nodes_[static_cast<size_t>(parent)].first_child;
    while (child >= 0) {
      Node& node = nodes_[static_cast<size_t>(child)];
      node.suffix = parent == 0 ? 0 : next(nodes_[static_cast<size_t>(parent)].suffix, node.byte);
      if (node.matched == 0) node.matched = nodes_[static_cast<size_t>(node.suffix)].matched;
      queue.push_back(child);
      child = node.next_sibling;
    }
  }
}

/// Takes the first `bytes` of what is held back.
std::string StopMatcher::release(size_t bytes) {
  std::string text = pending_.substr(begin_, bytes);
  begin_ += bytes;
  // Only when most of it is gone, so that a long hold costs nothing per byte of text.
  if (begin_ * 2 >= pending_.size()) {
    pending_.erase(0, begin_);
    begin_ = 0;
  }
  return text;
}

}  // namespace deepinfer::sampling
