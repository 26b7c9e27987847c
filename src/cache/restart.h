#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "cache/prefix_cache.h"

namespace deepinfer::cache {

/// What of model and options decides which rows of a sequence run through which layers (serving.md
/// §2.10).
struct RestartRules {
  int64_t num_layers = 0;            // L
  int64_t last_source = -1;          // c: the last KV source; -1 without one
  int64_t window = 0;                // W
  int64_t page_tokens = 0;           // even
  int64_t keep_tokens = 0;           // bounded replay: its KEEP >= W; 0: exact
  int64_t snapshot_interval = 2048;  // tokens between the snapshots of a prompt, whole pages
  bool takes_snapshots = true;
};

/// How a request begins or resumes: what it adopts, and which of its rows run where. All positions
/// are in tokens.
struct Restart {
  int64_t start = 0;              // its first row; no layer recomputes a token below: cached_tokens
  int64_t hit_tokens = 0;         // tokens in adopted pages; rows below are RowRole::kReplay
  SnapshotRef snapshot;           // rings to restore, as they were at `start`; may be nothing
  bool restores_decoder = false;  // its decoder rings too
  std::vector<int64_t> first;     // [L] layer l runs rows [first[l], …); never falls with l

  /// How many layers the row at `position` reaches: layers [0, depth).
  int64_t depth(int64_t position) const;
};

/// A request whose rows are asked for.
struct RestartRequest {
  int64_t num_tokens = 0;     // all that are known: the last one's row is to be sampled
  int64_t prompt_tokens = 0;  // as submitted: bounded replay cuts there, whenever it runs
  bool all_logits = false;    // every row's logits are wanted: nothing is adopted or skipped
};

/// Bounded replay: layers above the last source know no position below this one. 0: exact.
int64_t decoder_floor(const RestartRules& rules, const RestartRequest& request);

/// Exact skip of the decoder half and cone replay before a hit, in one rule: a layer runs the rows
/// whose keys some needed row of the next layer reads. Needed are the pages of rows that no page
/// holds, the last row's logits, and complete rings at the last page boundary. The nearest snapshot
/// that has all that is not recomputed saves the rows below it. `match` is the look-up of all
/// tokens but the last.
Restart plan_restart(const RestartRules& rules, const SnapshotPool& snapshots,
                     const PrefixCache::Match& match, const RestartRequest& request);

/// The next position above `position` where a prompt's step should end, so that a snapshot can be
/// taken there: whole intervals, and the last page boundary that leaves a token to compute (an
/// identical prompt restarts there). Nothing: there is none below `num_tokens`.
std::optional<int64_t> next_snapshot(const RestartRules& rules, int64_t position,
                                     int64_t num_tokens);

/// What a snapshot at `boundary`, taken while its rows are still in the rings, would hold; nothing
/// if not even the encoder rings are complete there.
std::optional<SnapshotInfo> snapshot_info(const RestartRules& rules, const Restart& restart,
                                          const RestartRequest& request, int64_t boundary);

}  // namespace deepinfer::cache
