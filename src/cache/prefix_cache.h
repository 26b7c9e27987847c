#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "cache/counted_ref.h"
#include "cache/snapshot_pool.h"

namespace deepinfer::cache {

class PrefixCache;
using PageRef = CountedRef<PrefixCache>;

/// Which page holds what. A page is *held* (someone has a reference), *cached* (nobody has one, but
/// its tokens are known and a later request may find it) or *free*. Full pages form a tree: a page
/// is found by a chained hash and decided by the token ids that are stored with it and, parent by
/// parent, with all pages before it, so equal hashes never mix two prefixes. A request's salt is
/// part of the root: prefixes of different salts never meet.
///
/// Pure host logic, a deterministic function of the calls made. Owned by the engine thread; all
/// references must be gone before it is destroyed.
class PrefixCache {
 public:
  using HashFunction = Hash128 (*)(std::span<const std::byte> bytes, const Hash128& parent);

  struct Options {
    int64_t num_pages = 0;
    int64_t page_tokens = 0;
    int64_t num_snapshot_units = 0;  // see SnapshotPool
    std::string identity;            // numerics id and checkpoint
    bool reuse = true;               // false: no page is ever published
    bool record_changes = false;     // for take_published() and take_settled()
    HashFunction hash = &hash128;    // tests force collisions
  };
  explicit PrefixCache(Options options);
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  /// A page nobody else has: a free one, the lowest first, or else the least recently used cached
  /// page that no other page follows. Nothing if all pages are held.
  [[nodiscard]] std::optional<PageRef> acquire();

  /// Publishes a full page: `tokens` are its page_tokens token ids, `parent` is what the insert of
  /// the page before returned (nothing for the first page, and only then `salt` counts). Returns
  /// the page of that content that can be found from now on: another one if there was one before,
  /// and then `page` stays private (the caller goes on using it and passes the result as the next
  /// parent). Returns nothing if `reuse` is off.
  PageRef insert(const PageRef& parent, std::string_view salt, std::span<const int32_t> tokens,
                 const PageRef& page);

  /// What is cached of a sequence.
  struct Match {
    std::vector<PageRef> pages;          // its first pages
    std::vector<SnapshotRef> snapshots;  // at the ends of some of them, ascending
  };
  /// The longest run of full pages that `tokens` starts with, and the snapshots on it. To leave a
  /// row to compute, pass all tokens but the last.
  Match lookup(std::span<const int32_t> tokens, std::string_view salt);

  SnapshotPool& snapshots() { return snapshots_; }
  const SnapshotPool& snapshots() const { return snapshots_; }
  /// Makes a snapshot findable at the end of a published page. Of two for one page, the one with
  /// decoder rings stays, of two equals the older one.
  void attach(const PageRef& page, const SnapshotRef& snapshot);
  /// Forgets the snapshot at the end of a published page, if there is one.
  void drop_snapshot(const PageRef& page);
  /// The snapshot at the end of a published page, if there is one.
  std::optional<SnapshotInfo> snapshot_at(const PageRef& page) const;

  /// A page as it was published; it may have gone since.
  struct Published {
    int32_t page = -1;
    Hash128 hash;
  };
  /// What is known of a page, as long as it is the one that was published.
  struct Content {
    int32_t parent = -1;  // the page before it; -1: the sequence's first
    std::string_view salt;
    std::span<const int32_t> tokens;
  };
  /// The pages published since the last call, parents first.
  std::vector<Published> take_published() { return std::exchange(published_, {}); }
  std::optional<Content> content(const Published& published) const;
  /// The pages with a snapshot that nobody holds any more since the last call; they may have gone.
  std::vector<int32_t> take_settled() { return std::exchange(settled_, {}); }
  /// The snapshot at the end of a page, if it is published and has one.
  std::optional<SnapshotRef> snapshot_of_page(int32_t page);

  /// free + cached + held = size.
  int64_t size() const { return static_cast<int64_t>(pages_.size()); }
  int64_t num_free() const { return static_cast<int64_t>(free_.size()); }
  int64_t num_cached() const { return num_cached_; }
  int64_t num_held() const { return size() - num_free() - num_cached(); }
  /// Cached pages that acquire() has given to others.
  int64_t num_evictions() const { return num_evictions_; }

 private:
  friend PageRef;

  static constexpr int32_t kNone = -1;

  struct Page {
    int32_t refs = 0;
    int32_t parent = kNone;    // a published page; kNone: the page is a sequence's first
    int32_t children = 0;      // published pages that follow it
    int32_t snapshot = kNone;  // at its end; see snapshot_of()
    bool published = false;
    Hash128 hash;            // of its tokens and all before them
    uint64_t last_used = 0;  // by the clock of releases and look-ups
    std::string salt;        // of first pages
  };
  struct Identity {
    size_t operator()(const Hash128& hash) const { return static_cast<size_t>(hash.low); }
  };

  Page& at(int32_t page) { return pages_[static_cast<size_t>(page)]; }
  const Page& at(int32_t page) const { return pages_[static_cast<size_t>(page)]; }
  std::span<int32_t> tokens_of(int32_t page) const;
  Hash128 root_of(std::string_view salt) const;
  /// The published page of these tokens under `parent`, or kNone.
  int32_t find(int32_t parent, std::string_view salt, const Hash128& hash,
               std::span<const int32_t> tokens);
  bool is_evictable(const Page& page) const {
    return page.published && page.refs == 0 && page.children == 0;
  }
  /// Changes a page through `change` and keeps evictable_ right.
  template <typename Change>
  void update(int32_t index, Change change);
  void unpublish(int32_t index);
  /// Index of the snapshot at the end of a page, or kNone.
  int32_t snapshot_of(int32_t page) const {
    return snapshots_.belongs_to(at(page).snapshot, page) ? at(page).snapshot : kNone;
  }

  void retain(int32_t index);
  void release(int32_t index);

  Options options_;
  std::vector<Page> pages_;
  std::unique_ptr<int32_t[]> tokens_;  // [pages, page_tokens]; untouched memory costs nothing
  std::vector<int32_t> free_;          // heap, smallest first
  std::unordered_multimap<Hash128, int32_t, Identity> index_;
  std::set<std::pair<uint64_t, int32_t>> evictable_;  // (last_used, page)
  std::vector<Published> published_;
  std::vector<int32_t> settled_;
  int64_t num_cached_ = 0;
  int64_t num_evictions_ = 0;
  uint64_t clock_ = 0;
  SnapshotPool snapshots_;
};

}  // namespace deepinfer::cache
