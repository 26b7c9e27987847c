#include "cache/prefix_cache.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "base/error.h"

namespace deepinfer::cache {

PrefixCache::PrefixCache(Options options)
    : options_(std::move(options)),
      pages_(static_cast<size_t>(options_.num_pages)),
      tokens_(std::make_unique_for_overwrite<int32_t[]>(
          static_cast<size_t>(options_.num_pages * options_.page_tokens))),
      free_(static_cast<size_t>(options_.num_pages)),
      snapshots_(options_.num_snapshot_units) {
  DEEPINFER_CHECK(options_.page_tokens > 0, "pages of {} tokens", options_.page_tokens);
  std::iota(free_.begin(), free_.end(), 0);  // ascending order is a heap
}

std::span<int32_t> PrefixCache::tokens_of(int32_t page) const {
  return {tokens_.get() + int64_t{page} * options_.page_tokens,
          static_cast<size_t>(options_.page_tokens)};
}

Hash128 PrefixCache::root_of(std::string_view salt) const {
  const Hash128 identity = options_.hash(std::as_bytes(std::span(options_.identity)), {});
  return options_.hash(std::as_bytes(std::span(salt)), identity);
}

int32_t PrefixCache::find(int32_t parent, std::string_view salt, const Hash128& hash,
                          std::span<const int32_t> tokens) {
  const auto [begin, end] = index_.equal_range(hash);
  for (auto entry = begin; entry != end; ++entry) {
    const Page& page = at(entry->second);
    if (page.parent != parent || (parent == kNone && page.salt != salt)) continue;
    if (std::ranges::equal(tokens_of(entry->second), tokens)) return entry->second;
  }
  return kNone;
}

template <typename Change>
void PrefixCache::update(int32_t index, Change change) {
  Page& page = at(index);
  if (is_evictable(page)) evictable_.erase({page.last_used, index});
  change(page);
  if (is_evictable(page)) evictable_.insert({page.last_used, index});
}

std::optional<PageRef> PrefixCache::acquire() {
  if (free_.empty()) {
    if (evictable_.empty()) return std::nullopt;
    unpublish(evictable_.begin()->second);
    ++num_evictions_;
  }
  std::pop_heap(free_.begin(), free_.end(), std::greater<>());
  const int32_t index = free_.back();
  free_.pop_back();
  return PageRef(this, index);
}

void PrefixCache::unpublish(int32_t index) {
  Page& page = at(index);
  evictable_.erase({page.last_used, index});
  if (snapshot_of(index) != kNone) snapshots_.detach(page.snapshot);
  const auto [begin, end] = index_.equal_range(page.hash);
  index_.erase(std::find_if(begin, end, [&](const auto& entry) { return entry.second == index; }));
  if (page.parent != kNone) {
    update(page.parent, [](Page& parent) { --parent.children; });
  }
  page = Page();
  --num_cached_;
  free_.push_back(index);  // capacity was reserved by the constructor's full size
  std::push_heap(free_.begin(), free_.end(), std::greater<>());
}

PageRef PrefixCache::insert(const PageRef& parent, std::string_view salt,
                            std::span<const int32_t> tokens, const PageRef& page) {
  DEEPINFER_CHECK(static_cast<int64_t>(tokens.size()) == options_.page_tokens && page,
                  "a page of {} tokens", tokens.size());
  if (!options_.reuse) return {};
  const int32_t before = parent.index();
  DEEPINFER_CHECK(!parent || at(before).published, "page {} follows page {}, which is not known",
                  page.index(), before);
  const Hash128 seed = parent ? at(before).hash : root_of(salt);
  const Hash128 hash = options_.hash(std::as_bytes(tokens), seed);
  const int32_t known = find(before, salt, hash, tokens);
  if (known != kNone) return PageRef(this, known);

  const int32_t index = page.index();
  DEEPINFER_CHECK(!at(index).published, "page {} published twice", index);
  std::ranges::copy(tokens, tokens_of(index).begin());
  Page& entry = at(index);
  entry.parent = before;
  entry.hash = hash;
  entry.published = true;
  if (!parent) entry.salt = salt;
  index_.emplace(hash, index);
  if (options_.record_changes) published_.push_back({.page = index, .hash = hash});
  if (parent) ++at(before).children;  // held, so not evictable
  return page;
}

PrefixCache::Match PrefixCache::lookup(std::span<const int32_t> tokens, std::string_view salt) {
  Match match;
  const auto page_tokens = static_cast<size_t>(options_.page_tokens);
  Hash128 hash = root_of(salt);
  int32_t parent = kNone;
  for (; tokens.size() >= page_tokens; tokens = tokens.subspan(page_tokens)) {
    const std::span<const int32_t> content = tokens.first(page_tokens);
    hash = options_.hash(std::as_bytes(content), hash);
    const int32_t page = find(parent, salt, hash, content);
    if (page == kNone) break;
    match.pages.push_back(PageRef(this, page));
    const int32_t snapshot = snapshot_of(page);
    if (snapshot != kNone) match.snapshots.push_back(snapshots_.ref(snapshot));
    parent = page;
  }
  return match;
}

void PrefixCache::attach(const PageRef& page, const SnapshotRef& snapshot) {
  if (!page) return;
  const int32_t index = page.index();
  DEEPINFER_CHECK(at(index).published, "a snapshot for page {}, which is not known", index);
  const int32_t old = snapshot_of(index);
  if (old != kNone) {
    if (snapshots_.at(old).info.has_decoder || !snapshots_.info(snapshot).has_decoder) return;
    snapshots_.detach(old);
  }
  snapshots_.attach(snapshot.index(), index);
  at(index).snapshot = snapshot.index();
}

void PrefixCache::drop_snapshot(const PageRef& page) {
  if (!page) return;
  const int32_t snapshot = snapshot_of(page.index());
  if (snapshot != kNone) snapshots_.detach(snapshot);
}

std::optional<SnapshotInfo> PrefixCache::snapshot_at(const PageRef& page) const {
  const int32_t snapshot = page ? snapshot_of(page.index()) : kNone;
  if (snapshot == kNone) return std::nullopt;
  return snapshots_.at(snapshot).info;
}

std::optional<PrefixCache::Content> PrefixCache::content(const Published& published) const {
  const Page& page = at(published.page);
  if (!page.published || page.hash != published.hash) return std::nullopt;
  return Content{.parent = page.parent, .salt = page.salt, .tokens = tokens_of(published.page)};
}

std::optional<SnapshotRef> PrefixCache::snapshot_of_page(int32_t page) {
  const int32_t snapshot = at(page).published ? snapshot_of(page) : kNone;
  if (snapshot == kNone) return std::nullopt;
  return snapshots_.ref(snapshot);
}

void PrefixCache::retain(int32_t index) {
  update(index, [this](Page& page) {
    if (page.published && page.refs == 0) --num_cached_;
    ++page.refs;
  });
}

void PrefixCache::release(int32_t index) {
  DEEPINFER_DCHECK(at(index).refs > 0, "page {} released too often", index);
  update(index, [this](Page& page) {
    if (--page.refs > 0) return;
    page.last_used = ++clock_;
    if (page.published) ++num_cached_;
  });
  if (at(index).refs > 0) return;
  if (!at(index).published) {
    free_.push_back(index);
    std::push_heap(free_.begin(), free_.end(), std::greater<>());
  } else if (options_.record_changes && snapshot_of(index) != kNone) {
    settled_.push_back(index);
  }
}

}  // namespace deepinfer::cache
