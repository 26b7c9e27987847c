#include "cache/restart.h"

#include <algorithm>

#include "base/error.h"

namespace deepinfer::cache {
namespace {

/// The last page boundary that leaves a token to compute; 0 if there is none.
int64_t last_boundary(const RestartRules& rules, int64_t num_tokens) {
  return (num_tokens - 1) / rules.page_tokens * rules.page_tokens;
}

/// The first row that each layer must run when `hit` tokens are in pages.
std::vector<int64_t> first_rows(const RestartRules& rules, const RestartRequest& request,
                                int64_t hit) {
  std::vector<int64_t> first(static_cast<size_t>(rules.num_layers));
  const int64_t boundary =
      rules.takes_snapshots ? last_boundary(rules, request.num_tokens) : request.num_tokens;
  const int64_t end = boundary > 0 ? boundary : request.num_tokens;
  int64_t needed_output = end;
  for (int64_t l = rules.num_layers - 1; l >= 0; --l) {
    int64_t& row = first[static_cast<size_t>(l)];
    // What the next layer reads, and a whole ring at the end.
    row = std::min(needed_output - (rules.window - 1), end - rules.window);
    row = std::max<int64_t>(0, row);
    if (l > rules.last_source) row = std::max(row, decoder_floor(rules, request));
    if (l == rules.last_source) row = std::min(row, hit);
    needed_output = row;
  }
  return first;
}

bool is_usable(const SnapshotInfo& info, const RestartRules& rules, const RestartRequest& request) {
  const int64_t prompt = rules.keep_tokens > 0 ? request.prompt_tokens : 0;
  return info.has_decoder && info.decoder_prompt == prompt;
}

}  // namespace

int64_t decoder_floor(const RestartRules& rules, const RestartRequest& request) {
  if (rules.keep_tokens == 0) return 0;
  return std::max<int64_t>(0, request.prompt_tokens - rules.keep_tokens);
}

int64_t Restart::depth(int64_t position) const {
  return std::upper_bound(first.begin(), first.end(), position) - first.begin();
}

Restart plan_restart(const RestartRules& rules, const SnapshotPool& snapshots,
                     const PrefixCache::Match& match, const RestartRequest& request) {
  Restart restart;
  if (request.all_logits) {
    restart.first.assign(static_cast<size_t>(rules.num_layers), 0);
    return restart;
  }
  restart.hit_tokens = static_cast<int64_t>(match.pages.size()) * rules.page_tokens;
  DEEPINFER_CHECK(restart.hit_tokens < request.num_tokens, "a hit of {} of {} tokens",
                  restart.hit_tokens, request.num_tokens);
  restart.first = first_rows(rules, request, restart.hit_tokens);
  restart.start = restart.first[0];
  const auto decoder = static_cast<size_t>(rules.last_source + 1);
  for (auto snapshot = match.snapshots.rbegin(); snapshot != match.snapshots.rend(); ++snapshot) {
    const SnapshotInfo& info = snapshots.info(*snapshot);
    if (info.num_tokens <= restart.start) break;
    // Without its decoder rings it serves if every decoder row that is needed comes after it.
    const bool needs_decoder =
        decoder < restart.first.size() && restart.first[decoder] < info.num_tokens;
    if (needs_decoder && !is_usable(info, rules, request)) continue;
    restart.start = info.num_tokens;
    restart.snapshot = *snapshot;
    restart.restores_decoder = needs_decoder;
    break;
  }
  return restart;
}

std::optional<int64_t> next_snapshot(const RestartRules& rules, int64_t position,
                                     int64_t num_tokens) {
  if (!rules.takes_snapshots) return std::nullopt;
  const int64_t last = last_boundary(rules, num_tokens);
  if (position >= last) return std::nullopt;
  return std::min(last, (position / rules.snapshot_interval + 1) * rules.snapshot_interval);
}

std::optional<SnapshotInfo> snapshot_info(const RestartRules& rules, const Restart& restart,
                                          const RestartRequest& request, int64_t boundary) {
  // Whether layer l's ring holds the window before the boundary: its rows ran, or were restored.
  const auto is_complete = [&](int64_t l) {
    const int64_t first = restart.first[static_cast<size_t>(l)];
    const bool is_decoder = l > rules.last_source;
    const bool restored = restart.snapshot && (!is_decoder || restart.restores_decoder);
    if (restored && first <= restart.start) return true;
    const int64_t floor = is_decoder ? decoder_floor(rules, request) : 0;
    return first <= std::max(floor, boundary - rules.window);
  };
  SnapshotInfo info = {.num_tokens = boundary, .has_decoder = true};
  if (boundary <= decoder_floor(rules, request)) info.has_decoder = false;
  for (int64_t l = 0; l < rules.num_layers; ++l) {
    if (is_complete(l)) continue;
    if (l <= rules.last_source) return std::nullopt;
    info.has_decoder = false;
  }
  if (info.has_decoder && rules.keep_tokens > 0) info.decoder_prompt = request.prompt_tokens;
  return info;
}

}  // namespace deepinfer::cache
