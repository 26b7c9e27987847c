#include "text/added_tokens.h"

namespace deepinfer::text {

AddedTokens::AddedTokens() : nodes_(1) {}

int32_t AddedTokens::child(int32_t node, char byte) const {
  int32_t next = nodes_[static_cast<size_t>(node)].first_child;
  while (next >= 0 && nodes_[static_cast<size_t>(next)].byte != byte) {
    next = nodes_[static_cast<size_t>(next)].sibling;
  }
  return next;
}

bool AddedTokens::add(std::string_view text, int32_t id) {
  int32_t node = 0;
  for (const char byte : text) {
    int32_t next = child(node, byte);
    if (next < 0) {
      next = static_cast<int32_t>(nodes_.size());
      nodes_.push_back({.sibling = nodes_[static_cast<size_t>(node)].first_child, .byte = byte});
      nodes_[static_cast<size_t>(node)].first_child = next;
    }
    node = next;
  }
  int32_t& end = nodes_[static_cast<size_t>(node)].id;
  if (end >= 0) return false;
  end = id;
  starts_[static_cast<uint8_t>(text.front())] = true;
  return true;
}

std::optional<int32_t> AddedTokens::find(std::string_view text) const {
  int32_t node = 0;
  for (const char byte : text) {
    node = child(node, byte);
    if (node < 0) return std::nullopt;
  }
  const int32_t id = nodes_[static_cast<size_t>(node)].id;
  return id < 0 ? std::nullopt : std::optional(id);
}

AddedTokens::Match AddedTokens::next(const char* begin, const char* end) const {
  for (; begin < end; ++begin) {
    if (!starts_[static_cast<uint8_t>(*begin)]) continue;
    Match longest{end, end, -1};
    int32_t node = 0;
    for (const char* at = begin; at < end; ++at) {
      node = child(node, *at);
      if (node < 0) break;
      const int32_t id = nodes_[static_cast<size_t>(node)].id;
      if (id >= 0) longest = {begin, at + 1, id};
    }
    if (longest.id >= 0) return longest;
  }
  return {end, end, -1};
}

}  // namespace deepinfer::text
