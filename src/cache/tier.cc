#include "cache/tier.h"

namespace deepinfer::cache {

bool HostTier::contains(const TierKey& key) const {
  const std::lock_guard lock(mutex_);
  return index_.contains(key);
}

TierBytes HostTier::get(const TierKey& key) {
  const std::lock_guard lock(mutex_);
  const auto found = index_.find(key);
  if (found == index_.end()) return nullptr;
  by_age_.splice(by_age_.begin(), by_age_, found->second);
  return found->second->bytes;
}

void HostTier::put(const TierKey& key, const TierBytes& bytes) {
  const auto size = static_cast<int64_t>(bytes->size());
  const std::lock_guard lock(mutex_);
  if (size > max_bytes_ || index_.contains(key)) return;
  while (num_bytes_ + size > max_bytes_) {
    num_bytes_ -= static_cast<int64_t>(by_age_.back().bytes->size());
    index_.erase(by_age_.back().key);
    by_age_.pop_back();
  }
  by_age_.push_front({key, bytes});
  index_.emplace(key, by_age_.begin());
  num_bytes_ += size;
}

int64_t HostTier::num_bytes() const {
  const std::lock_guard lock(mutex_);
  return num_bytes_;
}

}  // namespace deepinfer::cache
