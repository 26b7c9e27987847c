#include "text/merge_table.h"

#include <algorithm>
#include <bit>

namespace deepinfer::text {
namespace {

// No pair of ids: ids are not negative.
constexpr uint64_t kEmpty = std::numeric_limits<uint64_t>::max();
// Up to here a scan for the lowest rank beats a heap.
constexpr size_t kShortPiece = 64;

uint64_t pair_of(int32_t left, int32_t right) {
  return (static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32) | static_cast<uint32_t>(right);
}

}  // namespace

MergeTable::MergeTable(size_t num_merges, const std::array<int32_t, 256>& byte_ids)
    : byte_ids_(byte_ids) {
  const size_t capacity = std::bit_ceil(std::max<size_t>(num_merges, 8) * 2);
  slots_.assign(capacity, Slot{kEmpty, {}});
  shift_ = 64 - std::countr_zero(capacity);
}

bool MergeTable::add(int32_t left, int32_t right, Merge merge) {
  const uint64_t pair = pair_of(left, right);
  size_t i = (pair * 0x9E3779B97F4A7C15) >> shift_;
  while (slots_[i].pair != kEmpty) {
    if (slots_[i].pair == pair) return false;
    i = (i + 1) & (slots_.size() - 1);
  }
  slots_[i] = {pair, merge};
  if (merge.rank >= merged_.size()) merged_.resize(merge.rank + 1, -1);
  merged_[merge.rank] = merge.id;
  return true;
}

MergeTable::Merge MergeTable::find(int32_t left, int32_t right) const {
  const uint64_t pair = pair_of(left, right);
  size_t i = (pair * 0x9E3779B97F4A7C15) >> shift_;
  while (slots_[i].pair != pair) {
    if (slots_[i].pair == kEmpty) return {};
    i = (i + 1) & (slots_.size() - 1);
  }
  return slots_[i].merge;
}

void MergeTable::encode(std::string_view piece, MergeScratch& scratch,
                        std::vector<int32_t>& ids) const {
  if (piece.size() <= kShortPiece) {
    encode_short(piece, ids);
  } else {
    encode_long(piece, scratch, ids);
  }
}

void MergeTable::encode_short(std::string_view piece, std::vector<int32_t>& ids) const {
  std::array<int32_t, kShortPiece> symbols;
  std::array<Merge, kShortPiece> merges;  // of symbols i and i + 1
  size_t count = piece.size();
  for (size_t i = 0; i < count; ++i) symbols[i] = byte_ids_[static_cast<uint8_t>(piece[i])];
  for (size_t i = 0; i + 1 < count; ++i) merges[i] = find(symbols[i], symbols[i + 1]);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i) {
      if (merges[i].rank < merges[best].rank) best = i;
    }
    if (merges[best].rank == kNoRank) break;
    symbols[best] = merges[best].id;
    std::copy(symbols.begin() + best + 2, symbols.begin() + count, symbols.begin() + best + 1);
    if (best + 2 < count) {
      std::copy(merges.begin() + best + 2, merges.begin() + count - 1, merges.begin() + best + 1);
    }
    --count;
    if (best > 0) merges[best - 1] = find(symbols[best - 1], symbols[best]);
    if (best + 1 < count) merges[best] = find(symbols[best], symbols[best + 1]);
  }
  ids.insert(ids.end(), symbols.begin(), symbols.begin() + count);
}

void MergeTable::encode_long(std::string_view piece, MergeScratch& scratch,
                             std::vector<int32_t>& ids) const {
  const auto count = static_cast<int32_t>(piece.size());
  auto& [symbols, batch, queue] = scratch;
  queue.prepare(merged_.size());
  symbols.resize(piece.size());
  for (int32_t i = 0; i < count; ++i) {
    const auto at = static_cast<size_t>(i);
    symbols[at] = {byte_ids_[static_cast<uint8_t>(piece[at])], kNoRank, i - 1, i + 1};
  }
  const auto symbol = [&](int32_t i) -> MergeScratch::Symbol& {
    return symbols[static_cast<size_t>(i)];
  };
  // Finds the rank of the pair that starts at i, after one of its symbols changed.
  const auto update = [&](int32_t i) {
    MergeScratch::Symbol& left = symbol(i);
    left.rank = left.next < count ? find(left.id, symbol(left.next).id).rank : kNoRank;
    if (left.rank != kNoRank) queue.push(left.rank, i);
    return left.rank;
  };
  for (int32_t i = 0; i < count; ++i) update(i);

  uint32_t rank = 0;
  while (queue.pop(rank, batch)) {
    for (size_t k = 0; k < batch.size(); ++k) {
      MergeScratch::Symbol& left = symbol(batch[k]);
      if (left.rank != rank) continue;  // stale: a symbol of the pair has changed since
      left.id = merged_[rank];
      MergeScratch::Symbol& right = symbol(left.next);
      right.rank = kNoRank;
      left.next = right.next;
      if (left.next < count) symbol(left.next).previous = batch[k];
      uint32_t lowest = update(batch[k]);
      if (left.previous >= 0) lowest = std::min(lowest, update(left.previous));
      if (lowest < rank) {
        // Merges that a training made never get here: a pair is younger than what it is made of.
        for (++k; k < batch.size(); ++k) queue.push(rank, batch[k]);
      }
    }
  }
  for (int32_t i = 0; i < count; i = symbol(i).next) ids.push_back(symbol(i).id);
}

}  // namespace deepinfer::text
