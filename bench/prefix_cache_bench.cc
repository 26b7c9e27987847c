// What the prefix cache costs the engine thread: insert and look-up per page, a restart's plan, and
// the memory of a snapshot. Host logic only; no model.
#include <fmt/core.h>

#include <chrono>
#include <cstdint>
#include <vector>

#include "cache/kv_cache.h"
#include "cache/prefix_cache.h"
#include "cache/restart.h"

namespace deepinfer {
namespace {

using Clock = std::chrono::steady_clock;

double microseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

cache::CacheShape released_shape() {
  cache::CacheShape shape;
  shape.num_layers = 40;
  shape.encoder_layers = 21;
  shape.window = 128;
  shape.head_dim = 512;
  shape.index_head_dim = 128;
  shape.source_ratios = {2, 2, 2, 1};
  shape.ngram = 4;
  return shape;
}

/// `num_prompts` prompts of `num_pages` pages each in a pool that holds all of them.
void measure(int64_t num_prompts, int64_t num_pages) {
  cache::PrefixCache prefixes({.num_pages = num_prompts * num_pages,
                               .page_tokens = kPageTokens,
                               .num_snapshot_units = 0,
                               .identity = "bench"});
  std::vector<int32_t> tokens(static_cast<size_t>(num_pages * kPageTokens));
  double insert_us = 0;
  for (int64_t prompt = 0; prompt < num_prompts; ++prompt) {
    for (size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = static_cast<int32_t>((i * 7919 + static_cast<size_t>(prompt) * 104729) % 129280);
    }
    const auto begin = Clock::now();
    cache::PageRef parent;
    for (int64_t page = 0; page < num_pages; ++page) {
      const auto content =
          std::span(tokens).subspan(static_cast<size_t>(page * kPageTokens), kPageTokens);
      parent = prefixes.insert(parent, "", content, *prefixes.acquire());
    }
    insert_us += microseconds_since(begin);
  }
  constexpr int kRounds = 20;
  const auto begin = Clock::now();
  int64_t found = 0;
  for (int i = 0; i < kRounds; ++i) found += std::ssize(prefixes.lookup(tokens, "").pages);
  const double lookup_us = microseconds_since(begin);

  const cache::RestartRules rules = {
      .num_layers = 40, .last_source = 20, .window = 128, .page_tokens = kPageTokens};
  const cache::PrefixCache::Match match = prefixes.lookup(tokens, "");
  const auto plan_begin = Clock::now();
  for (int i = 0; i < kRounds; ++i) {
    plan_restart(rules, prefixes.snapshots(), match,
                 {.num_tokens = std::ssize(tokens) + 1, .prompt_tokens = std::ssize(tokens) + 1});
  }
  const double plan_us = microseconds_since(plan_begin);
  const auto pages = static_cast<double>(num_prompts * num_pages);
  fmt::print("{:>8} {:>8} {:>12.3f} {:>12.3f} {:>12.3f}\n", num_prompts, num_pages,
             insert_us / pages, lookup_us / static_cast<double>(found), plan_us / kRounds);
}

/// The share of layer-rows that exact skip saves of a prompt in the release.
double saved_share(int64_t num_tokens) {
  const cache::RestartRules rules = {
      .num_layers = 40, .last_source = 20, .window = 128, .page_tokens = kPageTokens};
  const cache::PrefixCache none({.num_pages = 1, .page_tokens = kPageTokens, .identity = ""});
  const cache::Restart restart =
      plan_restart(rules, none.snapshots(), {}, {.num_tokens = num_tokens});
  int64_t skipped = 0;
  for (const int64_t first : restart.first) skipped += first;
  return static_cast<double>(skipped) / static_cast<double>(num_tokens * rules.num_layers);
}

}  // namespace
}  // namespace deepinfer

int main() {
  fmt::print("{:>8} {:>8} {:>12} {:>12} {:>12}\n", "prompts", "pages", "insert us", "lookup us",
             "restart us");
  deepinfer::measure(100, 16);
  deepinfer::measure(100, 256);
  deepinfer::measure(4, 16384);  // a million tokens each
  const deepinfer::cache::CacheShape shape = deepinfer::released_shape();
  fmt::print("release: page {} B, snapshot 2 x {} B, slot {} B\n", shape.page_bytes(),
             shape.snapshot_unit_bytes(), shape.slot_bytes());
  for (const int64_t tokens : {1024, 4096, 8192, 16384, 32768}) {
    fmt::print("exact skip of {} tokens saves {:.1f} % of the layer-rows\n", tokens,
               100 * deepinfer::saved_share(tokens));
  }
  return 0;
}
