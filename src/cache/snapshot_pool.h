#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "cache/counted_ref.h"

namespace deepinfer::cache {

/// What a ring snapshot holds.
struct SnapshotInfo {
  int64_t num_tokens = 0;      // the boundary: rings as they are when so many tokens are committed
  bool has_decoder = false;    // rings above the last KV source too
  int64_t decoder_prompt = 0;  // bounded replay: the prompt length that its decoder rings belong
                               // to; 0: exact, they belong to the tokens alone
};

class SnapshotPool;
using SnapshotRef = CountedRef<SnapshotPool>;

/// Who owns the ring snapshots' memory, which is counted in units: one holds the rings up to the
/// last KV source, another one those above it (exact skip leaves them out at most boundaries). A
/// snapshot is held (has references), cached (belongs to a page, can be found) or neither, and then
/// its units are free. The least recently used cached one is given up when units run out. Pure host
/// logic; owned by the engine thread.
class SnapshotPool {
 public:
  static constexpr int32_t kNoUnit = -1;

  explicit SnapshotPool(int64_t num_units);
  SnapshotPool(const SnapshotPool&) = delete;
  SnapshotPool& operator=(const SnapshotPool&) = delete;

  /// Units for a new snapshot; nothing if all are held or there are too few.
  [[nodiscard]] std::optional<SnapshotRef> acquire(const SnapshotInfo& info);

  const SnapshotInfo& info(const SnapshotRef& ref) const { return at(ref.index()).info; }
  int32_t encoder_unit(const SnapshotRef& ref) const { return at(ref.index()).encoder_unit; }
  /// kNoUnit without decoder rings.
  int32_t decoder_unit(const SnapshotRef& ref) const { return at(ref.index()).decoder_unit; }

  /// Units: free + cached + held = total.
  int64_t num_units() const { return num_units_; }
  int64_t num_free() const { return static_cast<int64_t>(free_units_.size()); }
  int64_t num_cached() const { return cached_units_; }
  int64_t num_held() const { return num_units_ - num_free() - num_cached(); }

 private:
  friend SnapshotRef;
  friend class PrefixCache;

  struct Snapshot {
    SnapshotInfo info;
    int32_t encoder_unit = kNoUnit;
    int32_t decoder_unit = kNoUnit;
    int32_t refs = 0;
    int32_t page = -1;  // the page at whose end it is found
    uint64_t last_used = 0;

    int64_t units() const { return decoder_unit == kNoUnit ? 1 : 2; }
  };

  const Snapshot& at(int32_t index) const { return snapshots_[static_cast<size_t>(index)]; }
  Snapshot& at(int32_t index) { return snapshots_[static_cast<size_t>(index)]; }

  // For PrefixCache. A page remembers the index of its snapshot; the snapshot may be given up
  // behind its back, so belongs_to() has the last word.
  void attach(int32_t index, int32_t page);
  void detach(int32_t index);
  bool belongs_to(int32_t index, int32_t page) const {
    return index >= 0 && at(index).page == page;
  }
  SnapshotRef ref(int32_t index) { return {this, index}; }

  void retain(int32_t index);
  void release(int32_t index);
  /// Gives back the units of a snapshot that nobody holds and no page has.
  void free(Snapshot& snapshot, int32_t index);

  int64_t num_units_;
  int64_t cached_units_ = 0;
  uint64_t clock_ = 0;
  std::vector<int32_t> free_units_;  // the last one goes out first
  std::vector<Snapshot> snapshots_;
  std::vector<int32_t> free_snapshots_;
  std::set<std::pair<uint64_t, int32_t>> by_age_;  // cached ones: (last_used, index)
};

}  // namespace deepinfer::cache
