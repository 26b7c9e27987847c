#include "cache/snapshot_pool.h"

#include <numeric>

#include "base/error.h"

namespace deepinfer::cache {

SnapshotPool::SnapshotPool(int64_t num_units)
    : num_units_(num_units),
      free_units_(static_cast<size_t>(num_units)),
      snapshots_(static_cast<size_t>(num_units)),
      free_snapshots_(static_cast<size_t>(num_units)) {
  // Descending, so that the lowest goes out first.
  std::iota(free_units_.rbegin(), free_units_.rend(), 0);
  std::iota(free_snapshots_.rbegin(), free_snapshots_.rend(), 0);
}

std::optional<SnapshotRef> SnapshotPool::acquire(const SnapshotInfo& info) {
  const int64_t units = info.has_decoder ? 2 : 1;
  if (num_free() + num_cached() < units) return std::nullopt;
  while (num_free() < units) detach(by_age_.begin()->second);
  const int32_t index = free_snapshots_.back();
  free_snapshots_.pop_back();
  const auto take = [this] {
    const int32_t unit = free_units_.back();
    free_units_.pop_back();
    return unit;
  };
  Snapshot& snapshot = at(index);
  snapshot = Snapshot();
  snapshot.info = info;
  snapshot.encoder_unit = take();
  if (info.has_decoder) snapshot.decoder_unit = take();
  return ref(index);
}

void SnapshotPool::attach(int32_t index, int32_t page) {
  Snapshot& snapshot = at(index);
  DEEPINFER_CHECK(snapshot.page < 0 && snapshot.refs > 0, "snapshot {} attached to pages {} and {}",
                  index, snapshot.page, page);
  snapshot.page = page;
}

void SnapshotPool::detach(int32_t index) {
  Snapshot& snapshot = at(index);
  snapshot.page = -1;
  if (snapshot.refs > 0) return;  // whoever holds it frees it
  by_age_.erase({snapshot.last_used, index});
  cached_units_ -= snapshot.units();
  free(snapshot, index);
}

void SnapshotPool::retain(int32_t index) {
  Snapshot& snapshot = at(index);
  if (snapshot.refs++ > 0 || snapshot.page < 0) return;
  by_age_.erase({snapshot.last_used, index});
  cached_units_ -= snapshot.units();
}

void SnapshotPool::release(int32_t index) {
  Snapshot& snapshot = at(index);
  DEEPINFER_DCHECK(snapshot.refs > 0, "snapshot {} released too often", index);
  if (--snapshot.refs > 0) return;
  if (snapshot.page < 0) {
    free(snapshot, index);
    return;
  }
  snapshot.last_used = ++clock_;
  by_age_.insert({snapshot.last_used, index});
  cached_units_ += snapshot.units();
}

void SnapshotPool::free(Snapshot& snapshot, int32_t index) {
  free_units_.push_back(snapshot.encoder_unit);
  if (snapshot.decoder_unit != kNoUnit) free_units_.push_back(snapshot.decoder_unit);
  free_snapshots_.push_back(index);
}

}  // namespace deepinfer::cache
