#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "base/sha256.h"

namespace deepinfer::cache {

/// Names the content of an entry: a digest of all that it depends on (numerics, checkpoint, salt,
/// tokens), so one key never has two contents.
using TierKey = Sha256Digest;

struct TierKeyHash {
  size_t operator()(const TierKey& key) const {
    size_t value = 0;
    std::memcpy(&value, key.data(), sizeof(value));
    return value;
  }
};

using TierBytes = std::shared_ptr<const std::vector<std::byte>>;

/// A place for entries beyond the pools of the device: host memory, a disk, later another machine.
/// Losing an entry is always allowed, giving back another content never is. contains() may be
/// called by any thread, the rest by one thread (TierStore's) at a time.
class Tier {
 public:
  Tier() = default;
  Tier(const Tier&) = delete;
  Tier& operator=(const Tier&) = delete;
  virtual ~Tier() = default;

  virtual bool contains(const TierKey& key) const = 0;
  /// Nothing if it is not there (any more) or cannot be read; a damaged entry is dropped.
  virtual TierBytes get(const TierKey& key) = 0;
  /// Keeps the entry, or does not. Does nothing if the key is there.
  virtual void put(const TierKey& key, const TierBytes& bytes) = 0;
  /// Makes durable what was put.
  virtual void flush() {}
  virtual int64_t num_bytes() const = 0;
};

/// Host memory: the least recently used entries go when `max_bytes` are full.
class HostTier final : public Tier {
 public:
  explicit HostTier(int64_t max_bytes) : max_bytes_(max_bytes) {}

  bool contains(const TierKey& key) const override;
  TierBytes get(const TierKey& key) override;
  void put(const TierKey& key, const TierBytes& bytes) override;
  int64_t num_bytes() const override;

 private:
  struct Entry {
    TierKey key;
    TierBytes bytes;
  };

  int64_t max_bytes_;
  mutable std::mutex mutex_;  // guards all below
  int64_t num_bytes_ = 0;
  std::list<Entry> by_age_;  // the most recently used first
  std::unordered_map<TierKey, std::list<Entry>::iterator, TierKeyHash> index_;
};

}  // namespace deepinfer::cache
