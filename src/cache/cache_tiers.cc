#include "cache/cache_tiers.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "cache/disk_tier.h"
#include "cache/ring_image.h"

namespace deepinfer::cache {
namespace {

/// Bytes of a page entry before the page itself: the parent's key and the token ids, so that the
/// ids decide and not the key alone.
constexpr size_t page_entry_head(int64_t page_tokens) {
  return sizeof(TierKey) + static_cast<size_t>(page_tokens) * sizeof(int32_t);
}

std::span<const std::byte> as_bytes(const std::string_view& text) {
  return std::as_bytes(std::span(text));
}

/// What an entry's bytes mean, beyond numerics and checkpoint.
std::string geometry(const CacheShape& shape) {
  std::string text = fmt::format("1 page {} layers {}/{} window {} dims {} {} ratios", kPageTokens,
                                 shape.encoder_layers, shape.num_layers, shape.window,
                                 shape.head_dim, shape.index_head_dim);
  for (const int32_t ratio : shape.source_ratios) text += fmt::format(" {}", ratio);
  return text;
}

std::string identity_of(const TierOptions& options, const CacheShape& shape) {
  return options.identity + "\n" + geometry(shape);
}

std::vector<std::unique_ptr<Tier>> open_tiers(const TierOptions& options, const CacheShape& shape) {
  const auto head = static_cast<int64_t>(page_entry_head(kPageTokens));
  const int64_t max_entry_bytes =
      std::max(shape.page_bytes() + head, ring_image_bytes(shape, shape.snapshot_unit_layers()));
  std::vector<std::unique_ptr<Tier>> tiers;
  if (options.host_bytes > 0) tiers.push_back(std::make_unique<HostTier>(options.host_bytes));
  if (!options.directory.empty()) {
    tiers.push_back(
        std::make_unique<DiskTier>(DiskTier::Options{.directory = options.directory,
                                                     .identity = identity_of(options, shape),
                                                     .max_bytes = options.disk_bytes,
                                                     .max_entry_bytes = max_entry_bytes}));
  }
  return tiers;
}

}  // namespace

void CacheTransfers::run(KvCache& caches) {
  for (Item& item : items_) {
    const std::span<std::byte> bytes = std::span(item.bytes).subspan(item.head);
    switch (item.kind) {
      case Item::Kind::kReadPage:
        caches.read_page(item.index, bytes);
        break;
      case Item::Kind::kWritePage:
        caches.write_page(item.index, bytes);
        break;
      case Item::Kind::kReadUnit:
        caches.read_unit(item.index, bytes);
        break;
      case Item::Kind::kWriteUnit:
        caches.write_unit(item.index, bytes);
        break;
    }
  }
  has_run_ = true;
}

CacheTiers::CacheTiers(const TierOptions& options, PrefixCache& prefixes, const CacheShape& shape,
                       std::function<void()> on_loaded)
    : CacheTiers(options, open_tiers(options, shape), prefixes, shape, std::move(on_loaded)) {}

CacheTiers::CacheTiers(const TierOptions& options, std::vector<std::unique_ptr<Tier>> tiers,
                       PrefixCache& prefixes, const CacheShape& shape,
                       std::function<void()> on_loaded)
    : prefixes_(prefixes),
      shape_(shape),
      identity_(identity_of(options, shape)),
      keys_(static_cast<size_t>(prefixes.size())),
      store_(std::make_unique<TierStore>(std::move(tiers), std::move(on_loaded))) {}

TierKey CacheTiers::root_key(std::string_view salt) const {
  // The salt has a digest of its own, so that no identity and salt run together.
  const Sha256Digest salted = Sha256().add(as_bytes(salt)).finish();
  return Sha256().add(as_bytes("root")).add(salted).add(as_bytes(identity_)).finish();
}

TierKey CacheTiers::page_key(const TierKey& parent, std::span<const int32_t> tokens) const {
  return Sha256().add(as_bytes("page")).add(parent).add(std::as_bytes(tokens)).finish();
}

TierKey CacheTiers::ring_key(const TierKey& page, bool decoder, int64_t prompt) const {
  return Sha256()
      .add(as_bytes(decoder ? "decoder" : "encoder"))
      .add(page)
      .add(std::as_bytes(std::span(&prompt, 1)))
      .finish();
}

CacheTransfers& CacheTiers::transfers() {
  if (next_ == nullptr) next_ = std::make_unique<CacheTransfers>();
  return *next_;
}

std::unique_ptr<CacheTransfers> CacheTiers::take_transfers() {
  collect();
  return std::move(next_);
}

void CacheTiers::finish_transfers(std::unique_ptr<CacheTransfers> transfers) {
  using Kind = CacheTransfers::Item::Kind;
  for (CacheTransfers::Item& item : transfers->items_) {
    if (!transfers->has_run_ || (item.kind != Kind::kReadPage && item.kind != Kind::kReadUnit)) {
      continue;
    }
    const auto size = static_cast<int64_t>(item.bytes.size());
    if (item.kind == Kind::kReadPage) {
      store_->put(item.key, size,
                  [bytes = std::move(item.bytes)]() mutable { return std::move(bytes); });
    } else {
      store_->put(
          item.key, size,
          [bytes = std::move(item.bytes), shape = shape_, position = item.ring_position,
           layers = item.ring_layers] { return ring_image(shape, bytes, position, layers); });
    }
  }
  for (const LoadId id : transfers->loads_) {
    const auto load = loads_.find(id);
    if (load == loads_.end()) continue;  // cancelled, or given up
    if (transfers->has_run_) publish(load->second);
    loads_.erase(load);
    ended_.push_back(id);
  }
}

void CacheTiers::drain(KvCache& caches, ops::Backend& backend) {
  while (std::unique_ptr<CacheTransfers> now = take_transfers()) {
    now->run(caches);
    backend.synchronize();
    finish_transfers(std::move(now));
  }
}

void CacheTiers::collect() {
  for (const PrefixCache::Published& published : prefixes_.take_published()) copy_page(published);
  for (const int32_t page : prefixes_.take_settled()) copy_snapshot(page);
}

void CacheTiers::copy_page(const PrefixCache::Published& published) {
  const std::optional<PrefixCache::Content> content = prefixes_.content(published);
  if (!content) return;
  const TierKey parent =
      content->parent < 0 ? root_key(content->salt) : keys_[static_cast<size_t>(content->parent)];
  TierKey& key = keys_[static_cast<size_t>(published.page)];
  key = page_key(parent, content->tokens);
  if (store_->contains(key)) return;
  const size_t head = page_entry_head(kPageTokens);
  std::vector<std::byte> bytes(head + static_cast<size_t>(shape_.page_bytes()));
  std::ranges::copy(parent, bytes.begin());
  std::ranges::copy(std::as_bytes(content->tokens), bytes.begin() + sizeof(TierKey));
  transfers().items_.push_back({.kind = CacheTransfers::Item::Kind::kReadPage,
                                .index = published.page,
                                .bytes = std::move(bytes),
                                .head = head,
                                .key = key});
}

void CacheTiers::copy_snapshot(int32_t page) {
  const std::optional<SnapshotRef> snapshot = prefixes_.snapshot_of_page(page);
  if (!snapshot) return;
  const SnapshotPool& pool = prefixes_.snapshots();
  const SnapshotInfo& info = pool.info(*snapshot);
  const TierKey& key = keys_[static_cast<size_t>(page)];
  copy_rings(ring_key(key, false, 0), pool.encoder_unit(*snapshot), info.num_tokens,
             shape_.encoder_layers);
  if (!info.has_decoder) return;
  copy_rings(ring_key(key, true, info.decoder_prompt), pool.decoder_unit(*snapshot),
             info.num_tokens, shape_.num_layers - shape_.encoder_layers);
}

void CacheTiers::copy_rings(const TierKey& key, int32_t unit, int64_t position, int64_t layers) {
  if (store_->contains(key)) return;
  transfers().items_.push_back(
      {.kind = CacheTransfers::Item::Kind::kReadUnit,
       .index = unit,
       .bytes = std::vector<std::byte>(static_cast<size_t>(shape_.snapshot_unit_bytes())),
       .key = key,
       .ring_position = position,
       .ring_layers = layers});
}

std::optional<CacheTiers::LoadId> CacheTiers::start_load(std::span<const int32_t> tokens,
                                                         std::string_view salt,
                                                         Clock::time_point now) {
  collect();  // keys of all that is found
  const PrefixCache::Match match = prefixes_.lookup(tokens, salt);
  Load load;
  load.salt = salt;
  load.first_page = match.pages.size();
  load.deadline = now + kLoadTimeout;
  std::vector<TierKey>& keys = load.keys;
  for (const PageRef& page : match.pages) {
    keys.push_back(keys_[static_cast<size_t>(page.index())]);
  }
  constexpr auto kTokens = static_cast<size_t>(kPageTokens);
  while ((keys.size() + 1) * kTokens <= tokens.size()) {
    const TierKey key = page_key(keys.empty() ? root_key(salt) : keys.back(),
                                 tokens.subspan(keys.size() * kTokens, kTokens));
    if (!store_->contains(key)) break;
    keys.push_back(key);
  }
  int64_t known = 0;
  for (const SnapshotRef& snapshot : match.snapshots) {
    const SnapshotInfo& info = prefixes_.snapshots().info(snapshot);
    if (info.has_decoder) known = info.num_tokens;
  }
  load.snapshot = find_snapshot(keys, known);
  if (keys.size() == load.first_page && !load.snapshot) return std::nullopt;

  std::vector<TierKey> wanted(keys.begin() + static_cast<std::ptrdiff_t>(load.first_page),
                              keys.end());
  if (load.snapshot) {
    const TierKey& page = keys[static_cast<size_t>(load.snapshot->num_tokens) / kTokens - 1];
    wanted.push_back(ring_key(page, false, 0));
    if (load.snapshot->has_decoder) {
      wanted.push_back(ring_key(page, true, load.snapshot->decoder_prompt));
    }
  }
  load.tokens.assign(tokens.begin(),
                     tokens.begin() + static_cast<std::ptrdiff_t>(keys.size() * kTokens));
  const LoadId id = store_->load(std::move(wanted));
  loads_.emplace(id, std::move(load));
  return id;
}

std::optional<SnapshotInfo> CacheTiers::find_snapshot(std::span<const TierKey> keys,
                                                      int64_t above) const {
  std::optional<SnapshotInfo> best;
  for (size_t i = keys.size(); i > 0; --i) {
    SnapshotInfo info = {.num_tokens = static_cast<int64_t>(i) * kPageTokens};
    if (info.num_tokens <= above) break;
    if (!store_->contains(ring_key(keys[i - 1], false, 0))) continue;
    info.has_decoder = store_->contains(ring_key(keys[i - 1], true, 0));
    if (info.has_decoder) return info;
    if (!best) best = info;
  }
  return best;
}

std::vector<CacheTiers::LoadId> CacheTiers::finish_loads(Clock::time_point now) {
  for (const TierStore::Loaded& loaded : store_->take_loaded()) {
    const auto load = loads_.find(loaded.id);
    if (load == loads_.end()) continue;  // cancelled, or given up
    try {
      write(loaded.id, load->second, loaded.entries);
    } catch (const std::bad_alloc&) {
      // What was begun is written and not published; the request starts without it.
      ended_.push_back(loaded.id);
      loads_.erase(load);
    }
  }
  for (auto load = loads_.begin(); load != loads_.end();) {
    if (load->second.has_arrived || load->second.deadline > now) {
      ++load;
      continue;
    }
    log_warning("cached pages did not arrive in time; a request starts without them");
    ended_.push_back(load->first);
    load = loads_.erase(load);
  }
  return std::exchange(ended_, {});
}

void CacheTiers::write(LoadId id, Load& load, std::span<const TierBytes> entries) {
  constexpr auto kTokens = static_cast<size_t>(kPageTokens);
  const size_t head = page_entry_head(kPageTokens);
  load.has_arrived = true;
  const size_t num_pages = load.keys.size() - load.first_page;
  for (size_t i = 0; i < std::min(num_pages, entries.size()); ++i) {
    const size_t at = load.first_page + i;
    const std::vector<std::byte>& bytes = *entries[i];
    const std::span<const int32_t> tokens = std::span(load.tokens).subspan(at * kTokens, kTokens);
    const TierKey parent = at == 0 ? root_key(load.salt) : load.keys[at - 1];
    if (bytes.size() != head + static_cast<size_t>(shape_.page_bytes()) ||
        std::memcmp(bytes.data(), parent.data(), sizeof(parent)) != 0 ||
        std::memcmp(bytes.data() + sizeof(parent), tokens.data(), tokens.size_bytes()) != 0) {
      break;
    }
    std::optional<PageRef> page = prefixes_.acquire();
    if (!page) break;
    transfers().items_.push_back({.kind = CacheTransfers::Item::Kind::kWritePage,
                                  .index = page->index(),
                                  .bytes = bytes,
                                  .head = head});
    transfers().pages_.push_back(*page);
    load.pages.push_back(std::move(*page));
  }
  if (load.snapshot && load.pages.size() == num_pages && entries.size() > num_pages) {
    write_rings(load, entries.subspan(num_pages));
  }
  transfers().loads_.push_back(id);
}

void CacheTiers::write_rings(Load& load, std::span<const TierBytes> entries) {
  SnapshotInfo info = *load.snapshot;
  info.has_decoder = info.has_decoder && entries.size() > 1;
  const std::array<int64_t, 2> layers = {shape_.encoder_layers,
                                         shape_.num_layers - shape_.encoder_layers};
  const size_t num_units = info.has_decoder ? 2 : 1;
  for (size_t i = 0; i < num_units; ++i) {
    if (static_cast<int64_t>(entries[i]->size()) != ring_image_bytes(shape_, layers[i])) return;
  }
  SnapshotPool& pool = prefixes_.snapshots();
  std::optional<SnapshotRef> snapshot = pool.acquire(info);
  if (!snapshot) return;
  const std::array<int32_t, 2> units = {pool.encoder_unit(*snapshot), pool.decoder_unit(*snapshot)};
  for (size_t i = 0; i < num_units; ++i) {
    transfers().items_.push_back(
        {.kind = CacheTransfers::Item::Kind::kWriteUnit,
         .index = units[i],
         .bytes = unit_of_ring_image(shape_, *entries[i], info.num_tokens, layers[i])});
  }
  transfers().snapshots_.push_back(*snapshot);
  load.rings = std::move(*snapshot);
}

void CacheTiers::publish(const Load& load) {
  constexpr auto kTokens = static_cast<size_t>(kPageTokens);
  // Pages may have come and gone since the load began.
  std::vector<PageRef> pages = prefixes_.lookup(load.tokens, load.salt).pages;
  for (size_t i = pages.size(); i < load.first_page + load.pages.size(); ++i) {
    if (i < load.first_page) break;
    pages.push_back(prefixes_.insert(pages.empty() ? PageRef() : pages.back(), load.salt,
                                     std::span(load.tokens).subspan(i * kTokens, kTokens),
                                     load.pages[i - load.first_page]));
  }
  if (!load.rings) return;
  const auto page = static_cast<size_t>(load.snapshot->num_tokens) / kTokens - 1;
  if (page < pages.size()) prefixes_.attach(pages[page], load.rings);
}

}  // namespace deepinfer::cache
