#pragma once

#include <atomic>
#include <filesystem>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/thread_pool.h"
#include "cache/cache_tiers.h"
#include "cache/kv_cache.h"
#include "cache/prefix_cache.h"
#include "cache/restart.h"
#include "checkpoint/checkpoint.h"
#include "model/forward.h"
#include "tests/support/tensors.h"

namespace deepinfer::model {

/// How a sequence is run.
struct RunOptions {
  bool adopt = true;     // pages and snapshots of earlier runs, and leave some for later ones
  bool skip = true;      // only the rows that restart rules ask for; false: all rows everywhere
  int64_t chunk = 1000;  // most rows of a step
  int64_t prompt = 0;    // tokens submitted as prompt; 0: all but `decoded`
  int64_t decoded = 0;   // of the tokens, the last ones that are run one by one
  std::string salt = {};
};

/// What a sequence came to.
struct RunResult {
  std::vector<std::vector<float>> logits;  // of the prompt's last row and of the decoded rows
  std::vector<std::byte> rings;            // the last W rows of every layer
  int64_t start = 0;
  int64_t hit_tokens = 0;
  int64_t layer_rows = 0;  // rows that left a layer
};

/// One model on the reference backend that runs sequences one after the other in two slots, as the
/// engine would: looks up, restarts, runs chunks, takes snapshots, publishes pages.
class PrefixRuns {
 public:
  struct Sizes {
    int64_t pages = 64;
    int64_t snapshot_units = 0;
    int64_t keep_tokens = 0;           // bounded replay
    int64_t snapshot_interval = 2048;  // whole pages
    cache::TierOptions tiers = {};
  };
  PrefixRuns(const std::filesystem::path& checkpoint, const Sizes& sizes);
  /// Leaves everything in the tiers.
  ~PrefixRuns() { flush(); }

  RunResult run(std::span<const int32_t> tokens, const RunOptions& options);
  /// Takes from the tiers what a run of these tokens could adopt. Without them does nothing.
  void prefetch(std::span<const int32_t> tokens, std::string_view salt = "");
  /// Waits until the tiers have all that earlier runs left.
  void flush() {
    tiers_->drain(*caches_, *backend_);
    tiers_->flush();
  }

  cache::PrefixCache& prefixes() { return *prefixes_; }
  /// While a test holds it, the tiers' thread stops after the next load.
  std::mutex& tier_gate() { return tier_gate_; }
  cache::CacheTiers& tiers() { return *tiers_; }
  cache::KvCache& caches() { return *caches_; }
  const checkpoint::ModelConfig& config() const { return checkpoint_->config(); }
  const cache::RestartRules& rules() const { return rules_; }
  ops::Backend& backend() { return *backend_; }

 private:
  struct Request;

  void begin(Request& request);
  /// Runs rows [begin, end); logits of the last one if it is `sampled`.
  void step(Request& request, int64_t begin, int64_t end, bool sampled);
  /// Publishes what the rows up to `end` have filled, and takes a snapshot there.
  void publish(Request& request, int64_t end);
  std::vector<std::byte> rings(int64_t end);

  static constexpr int32_t kSlot = 1;
  static constexpr int64_t kMaxRows = 1000;

  std::shared_ptr<const checkpoint::Checkpoint> checkpoint_;
  ThreadPool pool_{2};
  std::unique_ptr<ops::Backend> backend_;
  std::unique_ptr<Model> model_;
  cache::RestartRules rules_;
  std::unique_ptr<cache::KvCache> caches_;
  std::unique_ptr<cache::PrefixCache> prefixes_;
  std::mutex tier_gate_;
  std::atomic<int> num_loaded_ = 0;  // calls of the tiers' thread
  std::unique_ptr<cache::CacheTiers> tiers_;
};

using Tokens = std::vector<int32_t>;

Tokens random_tokens(testing::Random& random, int64_t size, int64_t vocab);
/// The first `size` tokens of `tokens`, then others up to `total`.
Tokens branch(testing::Random& random, const Tokens& tokens, int64_t size, int64_t total,
              int64_t vocab);

/// All rows through all layers, nothing adopted.
RunResult cold(PrefixRuns& runs, const Tokens& tokens, int64_t decoded = 0);

/// The same logits and rings, bit for bit.
void expect_equal(const RunResult& got, const RunResult& want);

}  // namespace deepinfer::model
