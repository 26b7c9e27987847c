#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace deepinfer::text {

/// A priority queue of (rank, position) for merging long pieces: it hands out all positions of the
/// lowest rank at once, so that a batch walks through memory in order. Push and pop take constant
/// time per position plus the batch's sorting. Used by one thread at a time.
class RankQueue {
 public:
  /// Ranks are 0 … `num_ranks` - 1. Keeps what it has allocated; the queue must be empty.
  void prepare(size_t num_ranks);
  void push(uint32_t rank, int32_t position);
  /// Moves all positions of the lowest rank to `positions`, ascending. False if there are none.
  bool pop(uint32_t& rank, std::vector<int32_t>& positions);

 private:
  struct Node {
    int32_t position;
    int32_t next;
  };

  std::vector<int32_t> heads_;     // [ranks]: the latest node of a rank, -1 if none
  std::vector<uint64_t> present_;  // bit r % 64 of word r / 64: the rank r has nodes
  std::vector<uint64_t> summary_;  // the same for the words of present_
  size_t lowest_ = 0;              // words of summary_ below this one are zero
  std::vector<Node> nodes_;
  int32_t free_ = -1;  // the latest freed node
};

}  // namespace deepinfer::text
