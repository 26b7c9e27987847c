#include "cache/index_pool.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "base/error.h"

namespace deepinfer::cache {

IndexHandle::~IndexHandle() {
  if (pool_ != nullptr) pool_->release(index_);
}

IndexPool::IndexPool(int64_t size)
    : free_(static_cast<size_t>(size)), taken_(static_cast<size_t>(size)) {
  std::iota(free_.begin(), free_.end(), 0);  // ascending order is a heap
}

std::optional<IndexHandle> IndexPool::allocate() {
  if (free_.empty()) return std::nullopt;
  std::pop_heap(free_.begin(), free_.end(), std::greater<>());
  const int32_t index = free_.back();
  free_.pop_back();
  taken_[static_cast<size_t>(index)] = true;
  return IndexHandle(this, index);
}

void IndexPool::release(int32_t index) {
  // Runs in destructors: a double release would be a bug of this file alone, since handles are the
  // only owners.
  DEEPINFER_DCHECK(taken_[static_cast<size_t>(index)], "index {} released twice", index);
  taken_[static_cast<size_t>(index)] = false;
  free_.push_back(index);  // capacity was reserved by the constructor's full size
  std::push_heap(free_.begin(), free_.end(), std::greater<>());
}

}  // namespace deepinfer::cache
