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
  auto& [symbols, ranks, previous, next, heap] = scratch;
  symbols.resize(piece.size());
  ranks.resize(piece.size());
  previous.resize(piece.size());
  next.resize(piece.size());
  heap.clear();
  const auto at = [](int32_t i) { return static_cast<size_t>(i); };
  const auto key = [](uint32_t rank, int32_t i) {
    return (static_cast<uint64_t>(rank) << 32) | static_cast<uint32_t>(i);
  };
  const auto later = std::greater<uint64_t>();
  for (int32_t i = 0; i < count; ++i) {
    symbols[at(i)] = byte_ids_[static_cast<uint8_t>(piece[at(i)])];
    previous[at(i)] = i - 1;
    next[at(i)] = i + 1;
  }
  for (int32_t i = 0; i < count; ++i) {
    ranks[at(i)] = i + 1 < count ? find(symbols[at(i)], symbols[at(i + 1)]).rank : kNoRank;
    if (ranks[at(i)] != kNoRank) heap.push_back(key(ranks[at(i)], i));
  }
  std::make_heap(heap.begin(), heap.end(), later);
  // The rank of the pair that starts at i, after one of its symbols changed.
  const auto update = [&](int32_t i) {
    const int32_t right = next[at(i)];
    ranks[at(i)] = right < count ? find(symbols[at(i)], symbols[at(right)]).rank : kNoRank;
    if (ranks[at(i)] == kNoRank) return;
    heap.push_back(key(ranks[at(i)], i));
    std::push_heap(heap.begin(), heap.end(), later);
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), later);
    const auto i = static_cast<int32_t>(heap.back() & 0xFFFFFFFF);
    const auto rank = static_cast<uint32_t>(heap.back() >> 32);
    heap.pop_back();
    if (ranks[at(i)] != rank) continue;  // stale: a symbol of the pair has changed since
    const int32_t right = next[at(i)];
    symbols[at(i)] = find(symbols[at(i)], symbols[at(right)]).id;
    ranks[at(right)] = kNoRank;
    next[at(i)] = next[at(right)];
    if (next[at(i)] < count) previous[at(next[at(i)])] = i;
    update(i);
    if (previous[at(i)] >= 0) update(previous[at(i)]);
  }
  for (int32_t i = 0; i < count; i = next[at(i)]) ids.push_back(symbols[at(i)]);
}

}  // namespace deepinfer::text
