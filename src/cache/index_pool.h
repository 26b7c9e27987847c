#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace deepinfer::cache {

class IndexPool;

/// Ownership of one index of a pool (a page, a slot); gives it back on destruction. Move-only; must
/// not outlive its pool.
class IndexHandle {
 public:
  IndexHandle() = default;
  IndexHandle(IndexHandle&& other) noexcept
      : pool_(std::exchange(other.pool_, nullptr)), index_(other.index_) {}
  IndexHandle& operator=(IndexHandle&& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(index_, other.index_);
    return *this;
  }
  ~IndexHandle();

  int32_t index() const { return index_; }

 private:
  friend class IndexPool;
  IndexHandle(IndexPool* pool, int32_t index) : pool_(pool), index_(index) {}

  IndexPool* pool_ = nullptr;
  int32_t index_ = -1;
};

/// The integers [0, size), each owned by at most one handle. The lowest free index goes out first,
/// so that equal histories give equal indices. Owned by the engine thread.
class IndexPool {
 public:
  explicit IndexPool(int64_t size);
  IndexPool(const IndexPool&) = delete;
  IndexPool& operator=(const IndexPool&) = delete;

  /// Nothing when every index is taken.
  [[nodiscard]] std::optional<IndexHandle> allocate();
  int64_t size() const { return static_cast<int64_t>(taken_.size()); }
  int64_t num_free() const { return static_cast<int64_t>(free_.size()); }

 private:
  friend class IndexHandle;
  void release(int32_t index);

  std::vector<int32_t> free_;  // heap, smallest first
  std::vector<bool> taken_;
};

}  // namespace deepinfer::cache
