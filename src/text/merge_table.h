#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "text/rank_queue.h"

namespace deepinfer::text {

/// Buffers for merging long pieces, reused between pieces. One per thread that merges at the same
/// time.
struct MergeScratch {
  struct Symbol {
    int32_t id;
    uint32_t rank;  ///< Of the pair with the next symbol; kNoRank also for symbols merged away.
    int32_t previous;
    int32_t next;
  };

  std::vector<Symbol> symbols;
  std::vector<int32_t> batch;
  RankQueue queue;
};

/// The merges of a byte-level BPE as a flat hash table from pairs of ids. Immutable once built.
class MergeTable {
 public:
  static constexpr uint32_t kNoRank = std::numeric_limits<uint32_t>::max();

  struct Merge {
    uint32_t rank = kNoRank;  ///< kNoRank: the pair does not merge.
    int32_t id = -1;          ///< What it merges into.
  };

  MergeTable() = default;
  /// Room for `num_merges`; `byte_ids[b]` is the id of the single byte b.
  MergeTable(size_t num_merges, const std::array<int32_t, 256>& byte_ids);

  /// Adds a merge. False, without effect, if the pair has one already.
  bool add(int32_t left, int32_t right, Merge merge);
  Merge find(int32_t left, int32_t right) const;

  /// Appends the ids of one piece: bytes, merged lowest rank first, leftmost on ties. Long pieces
  /// take O(n log n) time and 32 bytes of scratch per byte.
  void encode(std::string_view piece, MergeScratch& scratch, std::vector<int32_t>& ids) const;

 private:
  struct Slot {
    uint64_t pair;
    Merge merge;
  };

  void encode_short(std::string_view piece, std::vector<int32_t>& ids) const;
  void encode_long(std::string_view piece, MergeScratch& scratch, std::vector<int32_t>& ids) const;

  std::vector<Slot> slots_;
  int shift_ = 0;
  std::vector<int32_t> merged_;  // by rank: what its pair merges into
  std::array<int32_t, 256> byte_ids_{};
};

}  // namespace deepinfer::text
