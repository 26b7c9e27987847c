#include "text/rank_queue.h"

#include <algorithm>
#include <bit>

namespace deepinfer::text {

void RankQueue::prepare(size_t num_ranks) {
  if (heads_.size() == num_ranks) return;
  heads_.assign(num_ranks, -1);
  present_.assign(num_ranks / 64 + 1, 0);
  summary_.assign(present_.size() / 64 + 1, 0);
  lowest_ = 0;
}

void RankQueue::push(uint32_t rank, int32_t position) {
  int32_t node = free_;
  if (node >= 0) {
    free_ = nodes_[static_cast<size_t>(node)].next;
  } else {
    node = static_cast<int32_t>(nodes_.size());
    nodes_.emplace_back();
  }
  int32_t& head = heads_[rank];
  nodes_[static_cast<size_t>(node)] = {position, head};
  if (head < 0) {
    present_[rank / 64] |= uint64_t{1} << (rank % 64);
    summary_[rank / 4096] |= uint64_t{1} << (rank / 64 % 64);
    lowest_ = std::min<size_t>(lowest_, rank / 4096);
  }
  head = node;
}

bool RankQueue::pop(uint32_t& rank, std::vector<int32_t>& positions) {
  while (lowest_ < summary_.size() && summary_[lowest_] == 0) ++lowest_;
  if (lowest_ == summary_.size()) return false;
  const size_t word = lowest_ * 64 + static_cast<size_t>(std::countr_zero(summary_[lowest_]));
  rank = static_cast<uint32_t>(word * 64 + static_cast<size_t>(std::countr_zero(present_[word])));
  present_[word] &= present_[word] - 1;
  if (present_[word] == 0) summary_[lowest_] &= summary_[lowest_] - 1;

  positions.clear();
  for (int32_t node = heads_[rank]; node >= 0;) {
    Node& n = nodes_[static_cast<size_t>(node)];
    positions.push_back(n.position);
    const int32_t next = n.next;
    n.next = free_;
    free_ = node;
    node = next;
  }
  heads_[rank] = -1;
  // Positions were mostly pushed in ascending order, and the list has the latest first.
  std::reverse(positions.begin(), positions.end());
  if (!std::is_sorted(positions.begin(), positions.end())) {
    std::sort(positions.begin(), positions.end());
  }
  return true;
}

}  // namespace deepinfer::text
