#include "tests/model/prefix_runs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace deepinfer::model {

struct PrefixRuns::Request {
  std::span<const int32_t> tokens;
  const RunOptions& options;
  cache::RestartRequest shape;
  cache::Restart restart;
  std::vector<cache::PageRef> pages;
  cache::PageRef tail;        // the last published page
  int64_t num_published = 0;  // pages
  RunResult result;
};

PrefixRuns::PrefixRuns(const std::filesystem::path& checkpoint, const Sizes& sizes)
    : checkpoint_(checkpoint::Checkpoint::open(checkpoint, {})),
      backend_(ops::make_reference_backend(ops::Numerics::kEngine, pool_)) {
  std::vector<int32_t> token_map;
  if (!config().engram_layers.empty()) token_map = *checkpoint_->engram_token_map();
  model_ = std::make_unique<Model>(*checkpoint_, *backend_, token_map,
                                   StepLimits{.max_rows = kMaxRows, .max_logit_rows = 1},
                                   bind_weights(*checkpoint_, *backend_));
  cache::CacheShape shape = Model::cache_shape(config());
  shape.num_slots = 2;
  shape.num_pages = sizes.pages;
  shape.num_snapshot_units = sizes.snapshot_units;
  shape.max_slot_tokens = sizes.pages * cache::kPageTokens;
  caches_ = std::make_unique<cache::KvCache>(*backend_, shape);
  prefixes_ = std::make_unique<cache::PrefixCache>(
      cache::PrefixCache::Options{.num_pages = sizes.pages,
                                  .page_tokens = cache::kPageTokens,
                                  .num_snapshot_units = sizes.snapshot_units,
                                  .identity = "test",
                                  .record_changes = true});
  rules_ = {.num_layers = shape.num_layers,
            .last_source = shape.encoder_layers - 1,
            .window = shape.window,
            .page_tokens = cache::kPageTokens,
            .keep_tokens = sizes.keep_tokens,
            .snapshot_interval = sizes.snapshot_interval,
            .takes_snapshots = sizes.snapshot_units > 0};
  tiers_ = std::make_unique<cache::CacheTiers>(sizes.tiers, *prefixes_, shape, [this] {
    const std::lock_guard gate(tier_gate_);
    ++num_loaded_;
    num_loaded_.notify_all();
  });
}

void PrefixRuns::prefetch(std::span<const int32_t> tokens, std::string_view salt) {
  const auto now = cache::CacheTiers::Clock::now();
  const int before = num_loaded_;
  const auto load = tiers_->start_load(tokens.first(tokens.size() - 1), salt, now);
  if (!load) return;
  num_loaded_.wait(before);
  DEEPINFER_CHECK(tiers_->finish_loads(now).empty(), "ended before it was written");
  tiers_->drain(*caches_, *backend_);
  const auto ended = tiers_->finish_loads(now);
  DEEPINFER_CHECK(ended.size() == 1 && ended[0] == *load, "{} loads have ended", ended.size());
}

RunResult PrefixRuns::run(std::span<const int32_t> tokens, const RunOptions& options) {
  const int64_t size = static_cast<int64_t>(tokens.size()) - options.decoded;
  Request request = {.tokens = tokens,
                     .options = options,
                     .shape = {.num_tokens = size,
                               .prompt_tokens = options.prompt > 0 ? options.prompt : size,
                               .all_logits = !options.skip},
                     .restart = {},
                     .pages = {},
                     .tail = {},
                     .result = {}};
  begin(request);
  int64_t done = request.restart.start;
  while (done < size) {
    const int64_t end = std::min(
        {size, done + options.chunk, cache::next_snapshot(rules_, done, size).value_or(size)});
    step(request, done, end, end == size);
    publish(request, end);
    tiers_->drain(*caches_, *backend_);
    done = end;
  }
  for (; done < static_cast<int64_t>(tokens.size()); ++done) {
    step(request, done, done + 1, true);
    publish(request, done + 1);
  }
  request.result.rings = rings(done);
  return std::move(request.result);
}

void PrefixRuns::begin(Request& request) {
  const int64_t size = request.shape.num_tokens;
  cache::PrefixCache::Match match;
  if (request.options.adopt) {
    match = prefixes_->lookup(request.tokens.first(static_cast<size_t>(size - 1)),
                              request.options.salt);
  }
  request.restart = plan_restart(rules_, prefixes_->snapshots(), match, request.shape);
  const cache::Restart& restart = request.restart;
  request.result.start = restart.start;
  request.result.hit_tokens = restart.hit_tokens;
  cache::SlotStart start = {
      .position = restart.start,
      .tokens = request.tokens.first(static_cast<size_t>(restart.start)),
  };
  const cache::SnapshotPool& snapshots = prefixes_->snapshots();
  if (restart.snapshot) {
    start.rings = {.encoder = snapshots.encoder_unit(restart.snapshot)};
    if (restart.restores_decoder) {
      start.rings->decoder = snapshots.decoder_unit(restart.snapshot);
      start.rings->decoder_floor = cache::decoder_floor(rules_, request.shape);
    }
  }
  caches_->reset_slot(kSlot, start);
  request.pages = match.pages;
  if (!match.pages.empty()) request.tail = match.pages.back();
  request.num_published = static_cast<int64_t>(match.pages.size());
  for (size_t i = 0; i < match.pages.size(); ++i) {
    caches_->assign_page(kSlot, static_cast<int64_t>(i), match.pages[i].index());
  }
}

void PrefixRuns::step(Request& request, int64_t begin, int64_t end, bool sampled) {
  while (static_cast<int64_t>(request.pages.size()) * cache::kPageTokens < end) {
    auto page = prefixes_->acquire();
    DEEPINFER_CHECK(page.has_value(), "the test's pool is too small");
    caches_->assign_page(kSlot, static_cast<int64_t>(request.pages.size()), page->index());
    request.pages.push_back(std::move(*page));
  }
  const cache::Restart& restart = request.restart;
  // A sequence's later rows are never shallower than its earlier ones.
  std::vector<ops::PlanRow> rows;
  for (int64_t t = end - 1; t >= begin; --t) {
    rows.push_back(
        {.slot = kSlot,
         .offset = static_cast<int32_t>(t - begin),
         .token = request.tokens[static_cast<size_t>(t)],
         .role = t < restart.hit_tokens ? ops::RowRole::kReplay : ops::RowRole::kPrefill});
  }
  const auto count = static_cast<int32_t>(rows.size());
  const std::vector<int32_t> span_begin(rows.size(), 0);
  const std::vector<int32_t> span_size(rows.size(), count);
  std::vector<int32_t> span_rows(rows.size());
  std::iota(span_rows.rbegin(), span_rows.rend(), 0);
  std::vector<int64_t> rows_at_layer;
  for (const int64_t first : restart.first) {
    rows_at_layer.push_back(std::clamp<int64_t>(end - first, 0, count));
  }
  model_->forward({.rows = rows,
                   .span_begin = span_begin,
                   .span_size = span_size,
                   .span_rows = span_rows,
                   .rows_at_layer = rows_at_layer,
                   .num_logit_rows = sampled ? 1 : 0},
                  *caches_);
  const ops::CommitEntry entry = {.slot = kSlot, .last_row = 0, .sample_row = -1};
  backend_->commit({.entries = std::span(&entry, 1),
                    .rows = model_->rows(),
                    .token = {},
                    .counts = {},
                    .slots = caches_->slots()});
  if (sampled) request.result.logits.push_back(testing::to_floats(model_->logits()));
  for (size_t l = 1; l < rows_at_layer.size(); ++l) request.result.layer_rows += rows_at_layer[l];
  request.result.layer_rows += sampled ? 1 : 0;
}

void PrefixRuns::publish(Request& request, int64_t end) {
  if (!request.options.adopt) return;
  for (; (request.num_published + 1) * cache::kPageTokens <= end; ++request.num_published) {
    const auto page = static_cast<size_t>(request.num_published);
    request.tail = prefixes_->insert(
        request.tail, request.options.salt,
        request.tokens.subspan(page * cache::kPageTokens, cache::kPageTokens), request.pages[page]);
  }
  if (end % cache::kPageTokens != 0 || !rules_.takes_snapshots) return;
  const auto info = snapshot_info(rules_, request.restart, request.shape, end);
  if (!info) return;
  cache::SnapshotPool& snapshots = prefixes_->snapshots();
  const auto snapshot = snapshots.acquire(*info);
  if (!snapshot) return;
  caches_->save_rings(kSlot, {.encoder = snapshots.encoder_unit(*snapshot),
                              .decoder = snapshots.decoder_unit(*snapshot)});
  prefixes_->attach(request.tail, *snapshot);
}

std::vector<std::byte> PrefixRuns::rings(int64_t end) {
  std::vector<std::byte> all;
  for (int64_t layer = 0; layer < rules_.num_layers; ++layer) {
    const ops::WindowRings& ring = caches_->rings(layer);
    const int64_t rows = ring.codes.dim(1);
    for (int64_t t = std::max<int64_t>(0, end - rules_.window); t < end; ++t) {
      if (ring.tags.row<int64_t>(kSlot)[t % rows] != t) {
        all.push_back(std::byte{0});  // not there
        continue;
      }
      for (const TensorView& part : {ring.codes, ring.scales}) {
        const auto* row = part.row<const std::byte>(kSlot) + t % rows * part.dim(2);
        all.insert(all.end(), row, row + part.dim(2));
      }
    }
  }
  return all;
}

Tokens random_tokens(testing::Random& random, int64_t size, int64_t vocab) {
  Tokens tokens;
  for (int64_t i = 0; i < size; ++i) tokens.push_back(static_cast<int32_t>(random.below(vocab)));
  return tokens;
}

Tokens branch(testing::Random& random, const Tokens& tokens, int64_t size, int64_t total,
              int64_t vocab) {
  Tokens result(tokens.begin(), tokens.begin() + std::min<int64_t>(size, std::ssize(tokens)));
  const Tokens rest = random_tokens(random, total - std::ssize(result), vocab);
  result.insert(result.end(), rest.begin(), rest.end());
  return result;
}

RunResult cold(PrefixRuns& runs, const Tokens& tokens, int64_t decoded) {
  return runs.run(tokens, {.adopt = false, .skip = false, .decoded = decoded});
}

void expect_equal(const RunResult& got, const RunResult& want) {
  ASSERT_EQ(got.logits.size(), want.logits.size());
  for (size_t i = 0; i < got.logits.size(); ++i) {
    ASSERT_TRUE(got.logits[i] == want.logits[i]) << "logits " << i;
  }
  ASSERT_TRUE(got.rings == want.rings) << "rings";
}

}  // namespace deepinfer::model
