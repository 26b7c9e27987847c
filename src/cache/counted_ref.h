#pragma once

#include <cstdint>
#include <utility>

namespace deepinfer::cache {

/// One of several owners of an index of a pool (a page, a snapshot). Copies share the index; the
/// pool may reuse it only when the last of them is gone. Must not outlive its pool; belongs to the
/// pool's thread.
template <typename Pool>
class CountedRef {
 public:
  CountedRef() = default;
  CountedRef(const CountedRef& other) : pool_(other.pool_), index_(other.index_) {
    if (pool_ != nullptr) pool_->retain(index_);
  }
  CountedRef(CountedRef&& other) noexcept
      : pool_(std::exchange(other.pool_, nullptr)), index_(std::exchange(other.index_, -1)) {}
  CountedRef& operator=(CountedRef other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(index_, other.index_);
    return *this;
  }
  ~CountedRef() {
    if (pool_ != nullptr) pool_->release(index_);
  }

  explicit operator bool() const { return pool_ != nullptr; }
  /// -1 if this owns nothing.
  int32_t index() const { return index_; }

 private:
  friend Pool;
  CountedRef(Pool* pool, int32_t index) : pool_(pool), index_(index) { pool_->retain(index_); }

  Pool* pool_ = nullptr;
  int32_t index_ = -1;
};

}  // namespace deepinfer::cache
