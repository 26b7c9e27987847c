#include "cache/cache_tiers.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
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

std::vector<std::unique_ptr<Tier>> open_tiers(const TierOptions& options, std::string identity,
                                              int64_t max_entry_bytes) {
  std::vector<std::unique_ptr<Tier>> tiers;
  if (options.host_bytes > 0) tiers.push_back(std::make_unique<HostTier>(options.host_bytes));
  if (!options.directory.empty()) {
    tiers.push_back(
        std::make_unique<DiskTier>(DiskTier::Options{.directory = options.directory,
                                                     .identity = std::move(identity),
                                                     .max_bytes = options.disk_bytes,
                                                     .max_entry_bytes = max_entry_bytes}));
  }
  return tiers;
}

/// What an entry's bytes mean, beyond numerics and checkpoint.
std::string geometry(const CacheShape& shape) {
  std::string text = fmt::format("1 page {} layers {}/{} window {} dims {} {} ratios", kPageTokens,
                                 shape.encoder_layers, shape.num_layers, shape.window,
                                 shape.head_dim, shape.index_head_dim);
  for (const int32_t ratio : shape.source_ratios) text += fmt::format(" {}", ratio);
  return text;
}

}  // namespace

CacheTiers::CacheTiers(const TierOptions& options, PrefixCache& prefixes, KvCache& caches,
                       ops::Backend& backend, std::function<void()> on_loaded)
    : prefixes_(prefixes),
      caches_(caches),
      backend_(backend),
      identity_(options.identity + "\n" + geometry(caches.shape())),
      keys_(static_cast<size_t>(prefixes.size())) {
  const CacheShape& shape = caches.shape();
  const auto head = static_cast<int64_t>(page_entry_head(kPageTokens));
  const int64_t max_entry =
      std::max(shape.page_bytes() + head, ring_image_bytes(shape, shape.snapshot_unit_layers()));
  store_ =
      std::make_unique<TierStore>(open_tiers(options, identity_, max_entry), std::move(on_loaded));
}

CacheTiers::~CacheTiers() {
  try {
    drain();
  } catch (const std::exception& error) {
    log_warning("the newest pages were not cached: {}", error.what());
  }
}

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
  Copy copy = {.key = key, .bytes = {}, .step = num_landed_};
  copy.bytes.resize(head + static_cast<size_t>(caches_.shape().page_bytes()));
  std::ranges::copy(parent, copy.bytes.begin());
  std::ranges::copy(std::as_bytes(content->tokens), copy.bytes.begin() + sizeof(TierKey));
  caches_.read_page(published.page, std::span(copy.bytes).subspan(head));
  copies_.push_back(std::move(copy));
}

void CacheTiers::copy_snapshot(int32_t page) {
  const std::optional<SnapshotRef> snapshot = prefixes_.snapshot_of_page(page);
  if (!snapshot) return;
  const SnapshotPool& pool = prefixes_.snapshots();
  const SnapshotInfo& info = pool.info(*snapshot);
  const CacheShape& shape = caches_.shape();
  const TierKey& key = keys_[static_cast<size_t>(page)];
  copy_rings(ring_key(key, false, 0), pool.encoder_unit(*snapshot), info.num_tokens,
             shape.encoder_layers);
  if (!info.has_decoder) return;
  copy_rings(ring_key(key, true, info.decoder_prompt), pool.decoder_unit(*snapshot),
             info.num_tokens, shape.num_layers - shape.encoder_layers);
}

void CacheTiers::copy_rings(const TierKey& key, int32_t unit, int64_t position, int64_t layers) {
  if (store_->contains(key)) return;
  Copy copy = {.key = key,
               .bytes = {},
               .ring_position = position,
               .ring_layers = layers,
               .step = num_landed_};
  copy.bytes.resize(static_cast<size_t>(caches_.shape().snapshot_unit_bytes()));
  caches_.read_unit(unit, copy.bytes);
  copies_.push_back(std::move(copy));
}

void CacheTiers::step_landed() {
  ++num_landed_;
  collect();
  while (!copies_.empty() && copies_.front().step + 2 <= num_landed_) {
    hand_over(copies_.front());
    copies_.pop_front();
  }
}

void CacheTiers::drain() {
  collect();
  if (copies_.empty()) return;
  backend_.synchronize();
  for (Copy& copy : copies_) hand_over(copy);
  copies_.clear();
}

void CacheTiers::hand_over(Copy& copy) {
  const auto size = static_cast<int64_t>(copy.bytes.size());
  if (copy.ring_position == 0) {
    store_->put(copy.key, size,
                [bytes = std::move(copy.bytes)]() mutable { return std::move(bytes); });
    return;
  }
  store_->put(
      copy.key, size,
      [bytes = std::move(copy.bytes), shape = caches_.shape(), position = copy.ring_position,
       layers = copy.ring_layers] { return ring_image(shape, bytes, position, layers); });
}

std::optional<CacheTiers::LoadId> CacheTiers::start_load(std::span<const int32_t> tokens,
                                                         std::string_view salt,
                                                         Clock::time_point now) {
  collect();  // keys of all that is found
  const PrefixCache::Match match = prefixes_.lookup(tokens, salt);
  Load load = {.tokens = {},
               .salt = std::string(salt),
               .first_page = match.pages.size(),
               .num_pages = 0,
               .snapshot = {},
               .deadline = now + kLoadTimeout};
  std::vector<TierKey> keys;  // of all pages, on the device and in the tiers
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
  load.num_pages = keys.size() - load.first_page;
  int64_t known = 0;
  for (const SnapshotRef& snapshot : match.snapshots) {
    const SnapshotInfo& info = prefixes_.snapshots().info(snapshot);
    if (info.has_decoder) known = info.num_tokens;
  }
  load.snapshot = find_snapshot(keys, known);
  if (load.num_pages == 0 && !load.snapshot) return std::nullopt;

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
  collect();
  std::vector<LoadId> ended;
  for (const TierStore::Loaded& loaded : store_->take_loaded()) {
    const auto load = loads_.find(loaded.id);
    if (load == loads_.end()) continue;  // cancelled, or given up
    place(load->second, loaded.entries);
    loads_.erase(load);
    ended.push_back(loaded.id);
  }
  for (auto load = loads_.begin(); load != loads_.end();) {
    if (load->second.deadline > now) {
      ++load;
      continue;
    }
    log_warning("cached pages did not arrive in time; a request starts without them");
    ended.push_back(load->first);
    load = loads_.erase(load);
  }
  return ended;
}

void CacheTiers::place(const Load& load, std::span<const TierBytes> entries) {
  constexpr auto kTokens = static_cast<size_t>(kPageTokens);
  const size_t head = page_entry_head(kPageTokens);
  // Pages may have come and gone since the load began.
  std::vector<PageRef> pages = prefixes_.lookup(load.tokens, load.salt).pages;
  for (size_t i = pages.size(); i < load.first_page + load.num_pages; ++i) {
    if (i < load.first_page || i - load.first_page >= entries.size()) break;
    const std::vector<std::byte>& bytes = *entries[i - load.first_page];
    const std::span<const int32_t> tokens = std::span(load.tokens).subspan(i * kTokens, kTokens);
    const TierKey parent =
        pages.empty() ? root_key(load.salt) : keys_[static_cast<size_t>(pages.back().index())];
    if (bytes.size() != head + static_cast<size_t>(caches_.shape().page_bytes()) ||
        std::memcmp(bytes.data(), parent.data(), sizeof(parent)) != 0 ||
        std::memcmp(bytes.data() + sizeof(parent), tokens.data(), tokens.size_bytes()) != 0) {
      break;
    }
    const std::optional<PageRef> page = prefixes_.acquire();
    if (!page) break;
    caches_.write_page(page->index(), std::span(bytes).subspan(head));
    const PageRef published =
        prefixes_.insert(pages.empty() ? PageRef() : pages.back(), load.salt, tokens, *page);
    keys_[static_cast<size_t>(published.index())] = page_key(parent, tokens);
    pages.push_back(published);
  }
  if (!load.snapshot || entries.size() <= load.num_pages) return;
  const size_t page = static_cast<size_t>(load.snapshot->num_tokens) / kTokens - 1;
  if (page < pages.size()) place_snapshot(load, pages[page], entries.subspan(load.num_pages));
}

void CacheTiers::place_snapshot(const Load& load, const PageRef& page,
                                std::span<const TierBytes> entries) {
  const CacheShape& shape = caches_.shape();
  SnapshotInfo info = *load.snapshot;
  info.has_decoder = info.has_decoder && entries.size() > 1;
  const std::array<int64_t, 2> layers = {shape.encoder_layers,
                                         shape.num_layers - shape.encoder_layers};
  const size_t num_units = info.has_decoder ? 2 : 1;
  for (size_t i = 0; i < num_units; ++i) {
    if (static_cast<int64_t>(entries[i]->size()) != ring_image_bytes(shape, layers[i])) return;
  }
  SnapshotPool& pool = prefixes_.snapshots();
  const std::optional<SnapshotRef> snapshot = pool.acquire(info);
  if (!snapshot) return;
  const std::array<int32_t, 2> units = {pool.encoder_unit(*snapshot), pool.decoder_unit(*snapshot)};
  for (size_t i = 0; i < num_units; ++i) {
    caches_.write_unit(units[i],
                       unit_of_ring_image(shape, *entries[i], info.num_tokens, layers[i]));
  }
  prefixes_.attach(page, *snapshot);
}

void CacheTiers::flush() {
  drain();
  store_->flush();
}

}  // namespace deepinfer::cache
