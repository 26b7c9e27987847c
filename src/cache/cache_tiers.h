#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "cache/kv_cache.h"
#include "cache/prefix_cache.h"
#include "cache/tier_store.h"

namespace deepinfer::cache {

/// Where pages and snapshots live beyond the device's pools.
struct TierOptions {
  int64_t host_bytes = 0;                // 0: no host tier
  std::filesystem::path directory = {};  // empty: no disk tier
  int64_t disk_bytes = 0;
  std::string identity = {};  // numerics id and checkpoint: entries of others do not fit
};

/// Copies between the pools and host memory: made on the engine thread, carried out in front of a
/// step by whoever calls the backend, given back when the backend has done it.
class CacheTransfers {
 public:
  /// Issues all copies, in order. Not called for a step that is skipped.
  void run(KvCache& caches);

 private:
  friend class CacheTiers;

  struct Item {
    enum class Kind : uint8_t { kReadPage, kWritePage, kReadUnit, kWriteUnit };
    Kind kind;
    int32_t index;  // page or snapshot unit
    std::vector<std::byte> bytes;
    size_t head = 0;            // bytes in front of what is copied
    TierKey key{};              // of a read
    int64_t ring_position = 0;  // of a read unit
    int64_t ring_layers = 0;
  };

  std::vector<Item> items_;
  std::vector<TierStore::LoadId> loads_;  // whose pages it writes
  std::vector<PageRef> pages_;            // holds what it writes
  std::vector<SnapshotRef> snapshots_;
  bool has_run_ = false;
};

/// Copies published pages and snapshots to the tiers, and brings them back before a request that
/// needs them is scheduled. Its calls never wait and never touch the backend: they fill transfers,
/// which travel with the steps. A page that is brought back is published when its transfer is done.
/// Page entries carry their token ids and are compared with the request's, parent by parent. Owned
/// by the engine thread.
class CacheTiers {
 public:
  using LoadId = TierStore::LoadId;
  using Clock = std::chrono::steady_clock;

  /// How long a request waits for its entries before it starts without them.
  static constexpr std::chrono::seconds kLoadTimeout{5};

  /// Opens the tiers. `prefixes` records its changes. `on_loaded` is called by another thread when
  /// finish_loads() has something to do. `prefixes` must outlive this. Errors: see DiskTier.
  CacheTiers(const TierOptions& options, PrefixCache& prefixes, const CacheShape& shape,
             std::function<void()> on_loaded);
  /// Over given tiers, fastest first; of `options` the identity counts.
  CacheTiers(const TierOptions& options, std::vector<std::unique_ptr<Tier>> tiers,
             PrefixCache& prefixes, const CacheShape& shape, std::function<void()> on_loaded);

  /// What is to be copied since the last call: new pages, snapshots whose requests have ended, and
  /// what loads have brought. Nothing if there is nothing. To be run in front of the next step; or
  /// at once, when no step is under way.
  std::unique_ptr<CacheTransfers> take_transfers();
  /// Takes transfers back when the backend is done with them, or when they were never run.
  void finish_transfers(std::unique_ptr<CacheTransfers> transfers);
  /// Runs all transfers now. Only while no step is under way.
  void drain(KvCache& caches, ops::Backend& backend);

  /// Starts to load what `tokens` (all of a request but the last) finds in the tiers and not on the
  /// device. Nothing if there is nothing: the request can be scheduled at once.
  std::optional<LoadId> start_load(std::span<const int32_t> tokens, std::string_view salt,
                                   Clock::time_point now);
  /// Takes what has arrived. Returns the loads that have ended since the last call, those that took
  /// too long included; their requests can be scheduled. What arrives after that, or for nobody, is
  /// dropped.
  std::vector<LoadId> finish_loads(Clock::time_point now);
  /// Nobody waits for this load any more. Unknown ids are ignored.
  void cancel(LoadId load) { loads_.erase(load); }

  /// Waits until everything handed over so far is durable.
  void flush() { store_->flush(); }
  const TierStore& store() const { return *store_; }

 private:
  /// What a load brings: pages [first_page, …) of a sequence, then perhaps a snapshot.
  struct Load {
    std::vector<int32_t> tokens;
    std::string salt;
    std::vector<TierKey> keys;  // of all pages of `tokens`
    size_t first_page = 0;
    std::vector<PageRef> pages;  // being written
    std::optional<SnapshotInfo> snapshot;
    SnapshotRef rings;  // being written
    Clock::time_point deadline;
    bool has_arrived = false;
  };

  CacheTransfers& transfers();
  /// Notes what has changed on the device, to be copied.
  void collect();
  void copy_page(const PrefixCache::Published& published);
  void copy_snapshot(int32_t page);
  void copy_rings(const TierKey& key, int32_t unit, int64_t position, int64_t layers);
  TierKey root_key(std::string_view salt) const;
  TierKey page_key(const TierKey& parent, std::span<const int32_t> tokens) const;
  TierKey ring_key(const TierKey& page, bool decoder, int64_t prompt) const;
  /// The deepest snapshot in the tiers at the end of one of these pages, above that many tokens;
  /// one with decoder rings, which always serves, if there is any.
  std::optional<SnapshotInfo> find_snapshot(std::span<const TierKey> keys, int64_t above) const;
  /// Begins to write what has arrived to the device.
  void write(LoadId id, Load& load, std::span<const TierBytes> entries);
  void write_rings(Load& load, std::span<const TierBytes> entries);
  /// Makes findable what has been written.
  void publish(const Load& load);

  PrefixCache& prefixes_;
  CacheShape shape_;
  std::string identity_;
  std::vector<TierKey> keys_;  // of published pages, by page
  std::unique_ptr<CacheTransfers> next_;
  std::unordered_map<LoadId, Load> loads_;
  std::vector<LoadId> ended_;
  std::unique_ptr<TierStore> store_;
};

}  // namespace deepinfer::cache
