#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
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

/// Copies published pages and snapshots to the tiers, and brings them back before a request that
/// needs them is scheduled. Its calls never wait. Page entries carry their token ids and are
/// compared with the request's, parent by parent. Owned by the engine thread.
class CacheTiers {
 public:
  using LoadId = TierStore::LoadId;
  using Clock = std::chrono::steady_clock;

  /// How long a request waits for its entries before it starts without them.
  static constexpr std::chrono::seconds kLoadTimeout{5};

  /// Opens the tiers. `prefixes` records its changes. `on_loaded` is called by another thread when
  /// finish_loads() has something to do. The others must outlive this. Errors: see DiskTier.
  CacheTiers(const TierOptions& options, PrefixCache& prefixes, KvCache& caches,
             ops::Backend& backend, std::function<void()> on_loaded);

  ~CacheTiers();

  /// To be called after every step that has landed and been published. Begins to copy new pages,
  /// and snapshots whose requests have ended; hands over to the tiers what has arrived by now
  /// (copies of two steps ago, because one step may be in flight behind the landed one).
  void step_landed();
  /// Waits for the backend and hands over all copies: when the engine has nothing to do.
  void drain();

  /// Starts to load what `tokens` (all of a request but the last) finds in the tiers and not on the
  /// device. Nothing if there is nothing: the request can be scheduled at once.
  std::optional<LoadId> start_load(std::span<const int32_t> tokens, std::string_view salt,
                                   Clock::time_point now);
  /// Puts what has arrived into the pools, as cached pages. Returns the loads that have ended,
  /// those that took too long included; their requests can be scheduled. What arrives after that,
  /// or for nobody, is dropped.
  std::vector<LoadId> finish_loads(Clock::time_point now);
  /// Nobody waits for this load any more. Unknown ids are ignored.
  void cancel(LoadId load) { loads_.erase(load); }

  /// Waits until everything stored so far is durable.
  void flush();
  const TierStore& store() const { return *store_; }

 private:
  /// What a load brings: pages [first_page, …) of a sequence, then perhaps a snapshot.
  struct Load {
    std::vector<int32_t> tokens;
    std::string salt;
    size_t first_page = 0;
    size_t num_pages = 0;
    std::optional<SnapshotInfo> snapshot;
    Clock::time_point deadline;
  };
  /// A copy from the device that is under way.
  struct Copy {
    TierKey key{};
    std::vector<std::byte> bytes;
    int64_t ring_position = 0;  // of rings; 0: a page
    int64_t ring_layers = 0;
    uint64_t step = 0;  // number of landed steps when it was issued
  };

  /// Begins to copy what has changed on the device.
  void collect();
  void copy_page(const PrefixCache::Published& published);
  void copy_snapshot(int32_t page);
  TierKey root_key(std::string_view salt) const;
  TierKey page_key(const TierKey& parent, std::span<const int32_t> tokens) const;
  TierKey ring_key(const TierKey& page, bool decoder, int64_t prompt) const;
  void copy_rings(const TierKey& key, int32_t unit, int64_t position, int64_t layers);
  void hand_over(Copy& copy);
  /// The deepest snapshot in the tiers at the end of one of these pages, above that many tokens;
  /// one with decoder rings, which always serves, if there is any.
  std::optional<SnapshotInfo> find_snapshot(std::span<const TierKey> keys, int64_t above) const;
  void place(const Load& load, std::span<const TierBytes> entries);
  void place_snapshot(const Load& load, const PageRef& page, std::span<const TierBytes> entries);

  PrefixCache& prefixes_;
  KvCache& caches_;
  ops::Backend& backend_;
  std::string identity_;
  std::vector<TierKey> keys_;  // of published pages, by page
  std::deque<Copy> copies_;
  uint64_t num_landed_ = 0;
  std::unordered_map<LoadId, Load> loads_;
  std::unique_ptr<TierStore> store_;
};

}  // namespace deepinfer::cache
