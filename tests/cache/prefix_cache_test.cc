#include "cache/prefix_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace deepinfer::cache {
namespace {

constexpr int64_t kTokens = 4;  // per page

using Tokens = std::vector<int32_t>;

Hash128 always_equal(std::span<const std::byte> /*bytes*/, const Hash128& /*parent*/) {
  return {7, 7};
}

PrefixCache::Options options(int64_t pages, int64_t units = 0) {
  return {.num_pages = pages, .page_tokens = kTokens, .num_snapshot_units = units, .identity = "t"};
}

/// Pages for all of `tokens` that fill one, published. Empty if the pool has too few.
std::vector<PageRef> store(PrefixCache& cache, const Tokens& tokens, std::string_view salt = "") {
  std::vector<PageRef> pages;
  PageRef parent;
  for (size_t at = 0; at + kTokens <= tokens.size(); at += kTokens) {
    const auto page = cache.acquire();
    if (!page) return {};
    parent = cache.insert(parent, salt, std::span(tokens).subspan(at, kTokens), *page);
    pages.push_back(parent);
  }
  return pages;
}

std::vector<int32_t> ids(const std::vector<PageRef>& pages) {
  std::vector<int32_t> result;
  for (const PageRef& page : pages) result.push_back(page.index());
  return result;
}

void expect_idle(const PrefixCache& cache) {
  EXPECT_EQ(cache.num_held(), 0);
  EXPECT_EQ(cache.num_free() + cache.num_cached(), cache.size());
  EXPECT_EQ(cache.snapshots().num_held(), 0);
}

TEST(PrefixCache, FindsTheLongestRunOfFullPages) {
  PrefixCache cache(options(8));
  const Tokens tokens = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  const std::vector<int32_t> stored = ids(store(cache, tokens));
  EXPECT_EQ(stored.size(), 2U);
  EXPECT_EQ(ids(cache.lookup(tokens, "").pages), stored);
  EXPECT_EQ(cache.lookup(Tokens{1, 2, 3, 4, 5, 6, 7}, "").pages.size(), 1U);
  EXPECT_EQ(cache.lookup(Tokens{1, 2, 3, 4, 5, 6, 7, 9}, "").pages.size(), 1U);
  EXPECT_TRUE(cache.lookup(Tokens{1, 2, 3}, "").pages.empty());
  EXPECT_TRUE(cache.lookup(Tokens{5, 6, 7, 8}, "").pages.empty());
  EXPECT_TRUE(cache.lookup({}, "").pages.empty());
  expect_idle(cache);
  EXPECT_EQ(cache.num_cached(), 2);
}

TEST(PrefixCache, SaltsNeverMeet) {
  for (const auto hash : {&hash128, &always_equal}) {
    PrefixCache::Options with_hash = options(8);
    with_hash.hash = hash;
    PrefixCache cache(with_hash);
    const Tokens tokens = {1, 2, 3, 4, 5, 6, 7, 8};
    const auto mine = ids(store(cache, tokens, "me"));
    EXPECT_TRUE(cache.lookup(tokens, "").pages.empty());
    EXPECT_TRUE(cache.lookup(tokens, "you").pages.empty());
    const auto plain = ids(store(cache, tokens));
    EXPECT_EQ(ids(cache.lookup(tokens, "me").pages), mine);
    EXPECT_EQ(ids(cache.lookup(tokens, "").pages), plain);
    EXPECT_NE(mine, plain);
  }
}

TEST(PrefixCache, StoredTokensDecideWhenAllHashesAreEqual) {
  PrefixCache::Options colliding = options(16);
  colliding.hash = &always_equal;
  PrefixCache cache(colliding);
  const Tokens a = {1, 2, 3, 4, 9, 9, 9, 9};
  const Tokens b = {4, 3, 2, 1, 9, 9, 9, 9};  // the same second page under another first one
  const auto of_a = ids(store(cache, a));
  const auto of_b = ids(store(cache, b));
  EXPECT_EQ(ids(cache.lookup(a, "").pages), of_a);
  EXPECT_EQ(ids(cache.lookup(b, "").pages), of_b);
  EXPECT_NE(of_a[1], of_b[1]);
  EXPECT_TRUE(cache.lookup(Tokens{9, 9, 9, 9}, "").pages.empty());
}

TEST(PrefixCache, TheFirstPageOfAContentWins) {
  PrefixCache cache(options(4));
  const Tokens tokens = {1, 2, 3, 4};
  const PageRef first = *cache.acquire();
  const PageRef second = *cache.acquire();
  EXPECT_EQ(cache.insert({}, "", tokens, first).index(), first.index());
  EXPECT_EQ(cache.insert({}, "", tokens, second).index(), first.index());
  EXPECT_EQ(cache.num_held(), 2);
  EXPECT_EQ(ids(cache.lookup(tokens, "").pages), std::vector{first.index()});
}

TEST(PrefixCache, EvictsTheLeastRecentlyUsedLeafAndNoHeldPage) {
  PrefixCache cache(options(4));
  const Tokens a = {1, 1, 1, 1, 2, 2, 2, 2};
  const Tokens b = {3, 3, 3, 3, 4, 4, 4, 4};
  store(cache, a);
  store(cache, b);
  EXPECT_EQ(cache.num_cached(), 4);
  static_cast<void>(cache.lookup(a, ""));  // a is now the more recent one
  std::vector<PageRef> held = {*cache.acquire()};
  EXPECT_EQ(cache.lookup(b, "").pages.size(), 1U);  // its last page went first
  EXPECT_EQ(cache.lookup(a, "").pages.size(), 2U);
  const PrefixCache::Match kept = cache.lookup(a, "");
  held.push_back(*cache.acquire());
  EXPECT_TRUE(cache.lookup(b, "").pages.empty());
  EXPECT_FALSE(cache.acquire().has_value());  // two pages are a's, which someone holds
  EXPECT_EQ(cache.num_evictions(), 2);
}

TEST(PrefixCache, PublishesNothingWithReuseOff) {
  PrefixCache::Options off = options(4);
  off.reuse = false;
  PrefixCache cache(off);
  const Tokens tokens = {1, 2, 3, 4};
  {
    const PageRef page = *cache.acquire();
    EXPECT_FALSE(cache.insert({}, "", tokens, page));
  }
  EXPECT_TRUE(cache.lookup(tokens, "").pages.empty());
  EXPECT_EQ(cache.num_free(), 4);
}

TEST(Snapshots, AreFoundAtTheEndsOfTheirPages) {
  PrefixCache cache(options(8, 4));
  const Tokens tokens = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  {
    const auto pages = store(cache, tokens);
    cache.attach(pages[1], *cache.snapshots().acquire({.num_tokens = 8, .has_decoder = true}));
    cache.attach(pages[0], *cache.snapshots().acquire({.num_tokens = 4}));
  }
  EXPECT_EQ(cache.snapshots().num_free(), 1);
  EXPECT_EQ(cache.snapshots().num_cached(), 3);
  {
    const PrefixCache::Match match = cache.lookup(tokens, "");
    ASSERT_EQ(match.snapshots.size(), 2U);
    EXPECT_EQ(cache.snapshots().info(match.snapshots[0]).num_tokens, 4);
    EXPECT_EQ(cache.snapshots().info(match.snapshots[1]).num_tokens, 8);
    EXPECT_EQ(cache.snapshots().decoder_unit(match.snapshots[0]), SnapshotPool::kNoUnit);
    EXPECT_EQ(cache.snapshots().num_held(), 3);
    // All held or free: three units are not to be had.
    EXPECT_FALSE(cache.snapshots().acquire({.num_tokens = 12, .has_decoder = true}).has_value());
  }
  // The one of the deeper page was released last, so the other one goes.
  cache.attach(cache.lookup(tokens, "").pages[2],
               *cache.snapshots().acquire({.num_tokens = 12, .has_decoder = true}));
  const PrefixCache::Match match = cache.lookup(tokens, "");
  ASSERT_EQ(match.snapshots.size(), 2U);
  EXPECT_EQ(cache.snapshots().info(match.snapshots[0]).num_tokens, 8);
  EXPECT_EQ(cache.snapshots().info(match.snapshots[1]).num_tokens, 12);
}

TEST(Snapshots, TheOneWithDecoderRingsStays) {
  PrefixCache cache(options(8, 8));
  const auto pages = store(cache, {1, 2, 3, 4});
  SnapshotPool& pool = cache.snapshots();
  const auto attach = [&](bool has_decoder) {
    cache.attach(pages[0], *pool.acquire({.num_tokens = 4, .has_decoder = has_decoder}));
  };
  attach(false);
  attach(true);
  EXPECT_EQ(pool.num_free(), 6);
  attach(false);
  attach(true);
  EXPECT_EQ(pool.num_free(), 6);
  EXPECT_TRUE(cache.snapshot_at(pages[0])->has_decoder);
  cache.drop_snapshot(pages[0]);
  EXPECT_EQ(pool.num_free(), 8);
  EXPECT_FALSE(cache.snapshot_at(pages[0]).has_value());
}

TEST(Snapshots, GoWithTheirPage) {
  PrefixCache cache(options(1, 2));
  {
    const auto pages = store(cache, {1, 2, 3, 4});
    cache.attach(pages[0], *cache.snapshots().acquire({.num_tokens = 4, .has_decoder = true}));
  }
  const auto page = cache.acquire();
  EXPECT_EQ(cache.snapshots().num_free(), 2);
}

/// A plain model of the cache: which prefixes are published under which page. Random requests
/// start, grow, publish, take snapshots and end; every look-up must agree with what was published
/// and not evicted, and every index must have exactly the owners that the model knows.
class RandomTrace {
 public:
  explicit RandomTrace(PrefixCache::HashFunction hash) : cache_(options_with(hash)) {}

  void step() {
    switch (random_() % 8) {
      case 0:
      case 1:
        start();
        break;
      case 2:
        end();
        break;
      default:
        grow();
    }
    check();
  }
  void finish() {
    running_.clear();
    expect_idle(cache_);
    // All of it can be had by one owner.
    std::vector<PageRef> all;
    while (auto page = cache_.acquire()) all.push_back(std::move(*page));
    EXPECT_EQ(static_cast<int64_t>(all.size()), cache_.size());
    EXPECT_EQ(cache_.num_cached(), 0);
    EXPECT_EQ(cache_.snapshots().num_free(), cache_.snapshots().num_units());
  }

 private:
  struct Request {
    Tokens tokens;
    std::string salt;
    std::vector<PageRef> pages;
    PageRef tail;  // the last published one
  };

  static PrefixCache::Options options_with(PrefixCache::HashFunction hash) {
    PrefixCache::Options result = options(40, 6);
    result.hash = hash;
    return result;
  }

  /// Few different tokens, so that prefixes are often shared.
  Tokens random_page() {
    Tokens page(kTokens, 0);
    page[0] = static_cast<int32_t>(random_() % 3);
    return page;
  }

  void start() {
    if (running_.size() > 6) return;
    Request request;
    request.salt = random_() % 4 == 0 ? "other" : "";
    for (size_t n = random_() % 6; n > 0; --n) {
      const Tokens page = random_page();
      request.tokens.insert(request.tokens.end(), page.begin(), page.end());
    }
    PrefixCache::Match match = cache_.lookup(request.tokens, request.salt);
    Tokens prefix;
    for (const PageRef& page : match.pages) {
      const auto at = static_cast<std::ptrdiff_t>(prefix.size());
      prefix.insert(prefix.end(), request.tokens.begin() + at,
                    request.tokens.begin() + at + kTokens);
      // What the page holds was written for this very prefix.
      ASSERT_EQ(content_[page.index()], std::pair(request.salt, prefix));
    }
    request.tokens = prefix;
    request.pages = match.pages;
    if (!match.pages.empty()) request.tail = match.pages.back();
    running_.push_back(std::move(request));
  }

  void grow() {
    if (running_.empty()) return;
    Request& request = running_[random_() % running_.size()];
    std::optional<PageRef> page = cache_.acquire();
    if (!page) {
      end();
      return;
    }
    const Tokens tokens = random_page();
    request.tokens.insert(request.tokens.end(), tokens.begin(), tokens.end());
    const PageRef tail = cache_.insert(request.tail, request.salt, tokens, *page);
    if (tail.index() == page->index()) content_[tail.index()] = {request.salt, request.tokens};
    ASSERT_EQ(content_[tail.index()], std::pair(request.salt, request.tokens));
    request.pages.push_back(std::move(*page));
    request.tail = tail;
    if (random_() % 3 > 0) return;
    const SnapshotInfo info = {.num_tokens = static_cast<int64_t>(request.tokens.size()),
                               .has_decoder = random_() % 2 == 0};
    if (const auto snapshot = cache_.snapshots().acquire(info)) cache_.attach(tail, *snapshot);
  }

  void end() {
    if (running_.empty()) return;
    std::swap(running_[random_() % running_.size()], running_.back());
    running_.pop_back();
  }

  void check() {
    std::map<int32_t, int> owners;
    for (const Request& request : running_) {
      for (const PageRef& page : request.pages) owners[page.index()] = 1;
      if (request.tail) owners[request.tail.index()] = 1;
    }
    ASSERT_EQ(cache_.num_held(), static_cast<int64_t>(owners.size()));
    ASSERT_EQ(cache_.num_free() + cache_.num_cached() + cache_.num_held(), cache_.size());
    const SnapshotPool& snapshots = cache_.snapshots();
    ASSERT_EQ(snapshots.num_held(), 0);
    ASSERT_EQ(snapshots.num_free() + snapshots.num_cached(), snapshots.num_units());
  }

  std::mt19937 random_{5};
  PrefixCache cache_;
  std::vector<Request> running_;
  std::map<int32_t, std::pair<std::string, Tokens>> content_;
};

TEST(PrefixCache, AgreesWithAPlainModelUnderRandomSteps) {
  for (const auto hash : {&hash128, &always_equal}) {
    RandomTrace trace(hash);
    for (int step = 0; step < 10000; ++step) {
      trace.step();
      if (testing::Test::HasFatalFailure()) FAIL() << "step " << step << " of seed 5";
    }
    trace.finish();
  }
}

}  // namespace
}  // namespace deepinfer::cache
