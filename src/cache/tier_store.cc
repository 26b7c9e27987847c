#include "cache/tier_store.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/log.h"

namespace deepinfer::cache {

TierStore::TierStore(std::vector<std::unique_ptr<Tier>> tiers, std::function<void()> on_loaded)
    : tiers_(std::move(tiers)),
      on_loaded_(std::move(on_loaded)),
      thread_([this](const std::stop_token& stop) { work(stop); }) {}

TierStore::~TierStore() {
  flush();
}

bool TierStore::contains(const TierKey& key) const {
  return std::ranges::any_of(tiers_, [&](const auto& tier) { return tier->contains(key); });
}

void TierStore::put(const TierKey& key, int64_t num_bytes,
                    std::function<std::vector<std::byte>()> make) {
  const std::lock_guard lock(mutex_);
  if (queued_bytes_ + num_bytes > kMaxQueuedBytes) {
    ++stats_.dropped_entries;
    return;
  }
  queued_bytes_ += num_bytes;
  stores_.push_back({.key = key, .num_bytes = num_bytes, .make = std::move(make)});
  changed_.notify_one();
}

TierStore::LoadId TierStore::load(std::vector<TierKey> keys) {
  const std::lock_guard lock(mutex_);
  loads_.push_back({.id = next_id_, .keys = std::move(keys)});
  changed_.notify_one();
  return next_id_++;
}

std::vector<TierStore::Loaded> TierStore::take_loaded() {
  const std::lock_guard lock(mutex_);
  return std::exchange(loaded_, {});
}

void TierStore::flush() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [this] { return loads_.empty() && stores_.empty() && !is_busy_; });
  // The thread waits for work, so the tiers are this thread's while the lock is held.
  for (const auto& tier : tiers_) tier->flush();
}

TierStore::Stats TierStore::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

std::vector<int64_t> TierStore::num_bytes() const {
  std::vector<int64_t> bytes;
  bytes.reserve(tiers_.size());
  for (const auto& tier : tiers_) bytes.push_back(tier->num_bytes());
  return bytes;
}

void TierStore::work(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (true) {
    if (!changed_.wait(lock, stop, [this] { return !loads_.empty() || !stores_.empty(); })) return;
    is_busy_ = true;
    if (!loads_.empty()) {
      const Load job = std::move(loads_.front());
      loads_.pop_front();
      lock.unlock();
      Loaded loaded = {.id = job.id, .entries = {}};
      for (const TierKey& key : job.keys) {
        TierBytes bytes = get(key);
        if (bytes == nullptr) break;
        loaded.entries.push_back(std::move(bytes));
      }
      lock.lock();
      stats_.loaded_entries += std::ssize(loaded.entries);
      loaded_.push_back(std::move(loaded));
      lock.unlock();
      on_loaded_();
      lock.lock();
    } else {
      const Store job = std::move(stores_.front());
      stores_.pop_front();
      lock.unlock();
      store(job);
      lock.lock();
      queued_bytes_ -= job.num_bytes;
      ++stats_.stored_entries;
    }
    is_busy_ = false;
    if (loads_.empty() && stores_.empty()) idle_.notify_all();
  }
}

TierBytes TierStore::get(const TierKey& key) {
  try {
    for (size_t i = 0; i < tiers_.size(); ++i) {
      TierBytes bytes = tiers_[i]->get(key);
      if (bytes == nullptr) continue;
      for (size_t faster = 0; faster < i; ++faster) tiers_[faster]->put(key, bytes);
      return bytes;
    }
  } catch (const std::exception& error) {
    log_warning("a cached entry could not be read: {}", error.what());
  }
  return nullptr;
}

void TierStore::store(const Store& job) {
  try {
    if (std::ranges::all_of(tiers_, [&](const auto& tier) { return tier->contains(job.key); })) {
      return;
    }
    const auto bytes = std::make_shared<const std::vector<std::byte>>(job.make());
    for (const auto& tier : tiers_) tier->put(job.key, bytes);
  } catch (const std::exception& error) {
    log_warning("an entry could not be cached: {}", error.what());
  }
}

}  // namespace deepinfer::cache
