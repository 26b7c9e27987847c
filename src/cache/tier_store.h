#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "cache/tier.h"

namespace deepinfer::cache {

/// The tiers, fastest first, and the thread that reads and writes them. Every call returns at once,
/// except flush(). Loads go before stores. What a slower tier gives is put in the faster ones.
class TierStore {
 public:
  using LoadId = uint64_t;
  struct Loaded {
    LoadId id = 0;
    std::vector<TierBytes> entries;  // of the keys asked for, in order, up to the first that failed
  };
  struct Stats {
    int64_t loaded_entries = 0;
    int64_t stored_entries = 0;
    int64_t dropped_entries = 0;  // too much was waiting to be written
  };

  /// `on_loaded` is called by the store's thread after every load.
  TierStore(std::vector<std::unique_ptr<Tier>> tiers, std::function<void()> on_loaded);
  /// Writes what waits, then flushes the tiers.
  ~TierStore();

  /// Whether a load would probably find the key. Any thread.
  bool contains(const TierKey& key) const;
  /// Stores what `make` returns, which runs on the store's thread; `num_bytes` is about its size.
  void put(const TierKey& key, int64_t num_bytes, std::function<std::vector<std::byte>()> make);
  LoadId load(std::vector<TierKey> keys);
  /// The loads that have ended since the last call.
  std::vector<Loaded> take_loaded();
  /// Waits until all that was asked for before is done, and makes it durable.
  void flush();
  Stats stats() const;
  /// Bytes in the tiers, fastest first.
  std::vector<int64_t> num_bytes() const;

 private:
  struct Store {
    TierKey key;
    int64_t num_bytes;
    std::function<std::vector<std::byte>()> make;
  };
  struct Load {
    LoadId id;
    std::vector<TierKey> keys;
  };

  /// Most bytes that wait to be written.
  static constexpr int64_t kMaxQueuedBytes = int64_t{256} << 20;

  void work(const std::stop_token& stop);
  TierBytes get(const TierKey& key);
  void store(const Store& job);

  std::vector<std::unique_ptr<Tier>> tiers_;
  std::function<void()> on_loaded_;

  mutable std::mutex mutex_;  // guards all below
  std::condition_variable_any changed_;
  std::condition_variable idle_;
  std::deque<Load> loads_;
  std::deque<Store> stores_;
  int64_t queued_bytes_ = 0;
  bool is_busy_ = false;
  std::vector<Loaded> loaded_;
  LoadId next_id_ = 1;
  Stats stats_;
  std::jthread thread_;  // last: ends before what it uses
};

}  // namespace deepinfer::cache
