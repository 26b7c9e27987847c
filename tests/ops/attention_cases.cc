// Golden values of attention, compressor and indexer, and the indexer against a brute-force
// search with many ties.
#include <algorithm>
#include <array>
#include <numeric>

#include "tests/ops/step_caches.h"
#include "tests/ops/suite.h"
#include "tests/support/compare.h"

namespace deepinfer::ops {
namespace {

using testing::close_by_row;
using testing::Golden;
using testing::within_one_bf16_step;

constexpr float kTolerance = 2e-6F;  // of the row's largest magnitude
constexpr int64_t kPairs = 8;        // rotated pairs; with frequencies 0 nothing rotates

std::vector<float> identity(int64_t n) {
  std::vector<float> matrix(static_cast<size_t>(n * n));
  for (int64_t i = 0; i < n; ++i) matrix[static_cast<size_t>(i * n + i)] = 1;
  return matrix;
}

class AttentionOps : public BackendTest {
 protected:
  void open() {
    const auto& path = is_exact() ? suite().exact_ops : suite().released_ops;
    if (!path) GTEST_SKIP() << "DEEPINFER_TEST_DATA is not set";
    golden_.emplace(*path);
  }
  Rope no_rope() { return {operands_.zeros(DType::kF32, {kPairs})}; }

  /// One query after keys [n, D]: the first `num_window` in the window, the others as selected
  /// entries.
  SparseAttentionParams attend(StepCaches& caches, std::span<const float> q,
                               std::span<const float> keys, int64_t num_window,
                               const TensorView& sink) {
    const int64_t head_dim = caches.sizes.head_dim;
    const auto split = static_cast<size_t>(num_window * head_dim);
    // The query's own position is in the step and needs a key: the last of the window.
    caches.set_committed(0, num_window - 1);
    caches.fill_ring(0, keys.first(split - static_cast<size_t>(head_dim)));
    caches.fill_entries(0, keys.subspan(split));
    std::vector<int32_t> selected(keys.size() / static_cast<size_t>(head_dim) -
                                  static_cast<size_t>(num_window));
    std::iota(selected.begin(), selected.end(), 0);
    const auto count = static_cast<int32_t>(selected.size());

    StepCaches own(*backend_, operands_,
                   {.head_dim = head_dim, .ring_rows = caches.sizes.ring_rows});
    own.fill_ring(
        0,
        keys.subspan(split - static_cast<size_t>(head_dim)).first(static_cast<size_t>(head_dim)));
    const int64_t heads = sink.dim(0);
    SparseAttentionParams p{.q = operands_.put_act(q, {1, heads, head_dim}),
                            .rows = caches.resolve(plan_rows(0, 0, 1)),
                            .slots = caches.slots,
                            .window = num_window,
                            .rings = caches.rings,
                            .window_codes = own.rings.codes.at(0).slice(0, 1),
                            .window_scales = own.rings.scales.at(0).slice(0, 1),
                            .window_floor = {},
                            .pages = caches.pages,
                            .selected = {},
                            .num_selected = {},
                            .sink = sink,
                            .rope = no_rope(),
                            .out = operands_.zeros_act({1, heads, head_dim}),
                            .trace_core = operands_.zeros(DType::kF32, {1, heads, head_dim})};
    if (count > 0) {
      p.selected = operands_.put_i32(selected, {1, count});
      p.num_selected = operands_.put_i32(std::array{count}, {1});
    }
    backend_->sparse_attention(p);
    return p;
  }

  void check_released_attention(const std::string& name, int64_t num_window) {
    const std::vector<float> keys = golden_->floats(name + ".kv");
    const int64_t head_dim = golden_->shape(name + ".kv")[1];
    StepCaches caches(*backend_, operands_, {.head_dim = head_dim, .ring_rows = num_window + 16});
    const TensorView sink = operands_.put(golden_->view(name + ".sink"));
    const auto p = attend(caches, golden_->floats(name + ".q"), keys, num_window, sink);
    for (const TensorView& out : {p.out, p.trace_core}) {
      EXPECT_TRUE(within_one_bf16_step(operands_.floats(out), golden_->floats(name + ".o"),
                                       golden_->ints(name + ".o_firm")))
          << name;
    }
  }

  void check_compressor(const std::string& name, int32_t ratio) {
    if (!golden_->has(name + ".x")) return;  // only the large goldens have it
    const Shape x = golden_->shape(name + ".x");
    const int64_t rows = x[1];
    const int64_t head_dim = golden_->shape(name + ".wkv")[0];
    StepCaches caches(*backend_, operands_, {.head_dim = head_dim, .ratio = ratio});
    const auto weight = [&](const std::string& part) {
      return operands_.put(golden_->view(name + part));
    };
    const CompressParams p{
        .x = operands_.put_act(golden_->floats(name + ".x"), {rows, x[2]}),
        .rows = caches.resolve(plan_rows(0, 0, static_cast<int32_t>(rows))),
        .slots = caches.slots,
        .wkv = weight(".wkv"),
        .wgate = ratio == 2 ? weight(".wgate") : TensorView(),
        .norm = weight(".norm"),
        .index_wk = operands_.zeros(DType::kF32, {caches.sizes.index_dim, head_dim}),
        .index_norm = operands_.zeros(DType::kF32, {caches.sizes.index_dim}),
        .rope = no_rope(),
        .eps = 1e-20F,
        .pages = caches.pages,
        .pending = caches.pending,
        .trace_latent = operands_.zeros(DType::kF32, {rows, head_dim})};
    backend_->compress(p);
    const std::vector<float> latents = operands_.floats(p.trace_latent);
    std::vector<float> completed;
    for (int64_t t = ratio - 1; t < rows; t += ratio) {
      const auto row = latents.begin() + t * head_dim;
      completed.insert(completed.end(), row, row + head_dim);
    }
    const std::vector<float> want = golden_->floats(name + ".latent");
    const std::vector<int64_t> nowhere_firm(want.size());
    EXPECT_TRUE(is_exact() ? close_by_row(completed, want, head_dim, kTolerance)
                           : within_one_bf16_step(completed, want, nowhere_firm))
        << name;
  }

  std::optional<Golden> golden_;
};

TEST_P(AttentionOps, AttentionMatchesGoldens) {
  open();
  if (IsSkipped()) return;
  if (!is_exact()) {
    check_released_attention("attention", 11);         // and 7 entries
    check_released_attention("attention_tiles", 128);  // and 4 entries: tiles of 64, 64, 4
    return;
  }
  // Keys are unit vectors and D^½ = 8, so that a query is its scores times 8 and a result its
  // probabilities.
  constexpr int64_t kDim = 64;
  const Shape shape = golden_->shape("sink.logits");
  const int64_t heads = shape[1];
  const int64_t queries = shape[2];
  const int64_t count = shape[3];
  const std::vector<float> logits = golden_->floats("sink.logits");
  const std::vector<float> want = golden_->floats("sink.prob");
  const std::vector<float> unit = identity(kDim);
  const TensorView sink = operands_.put(golden_->view("sink.sink"));
  for (int64_t query = 0; query < queries; ++query) {
    std::vector<float> q(static_cast<size_t>(heads * kDim));
    const auto place = [&](int64_t h, int64_t j) {
      return static_cast<size_t>((h * queries + query) * count + j);
    };
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t j = 0; j < count; ++j) {
        q[static_cast<size_t>(h * kDim + j)] = 8 * logits[place(h, j)];
      }
    }
    StepCaches caches(*backend_, operands_, {.head_dim = kDim, .ring_rows = count});
    const auto p =
        attend(caches, q, std::span(unit).first(static_cast<size_t>(count * kDim)), count, sink);
    const std::vector<float> out = operands_.floats(p.out);
    for (int64_t h = 0; h < heads; ++h) {
      EXPECT_TRUE(close_by_row(
          std::span(out).subspan(static_cast<size_t>(h * kDim), static_cast<size_t>(count)),
          std::span(want).subspan(place(h, 0), static_cast<size_t>(count)), count, kTolerance));
    }
  }
}

TEST_P(AttentionOps, CompressorMatchesGoldens) {
  open();
  if (IsSkipped()) return;
  check_compressor("compressor1", 1);
  check_compressor("compressor2", 2);
}

TEST_P(AttentionOps, IndexScoresMatchGoldens) {
  open();
  if (IsSkipped()) return;
  if (is_exact()) GTEST_SKIP() << "golden scores are of the released mode";
  const Shape q = golden_->shape("index.q");
  const int64_t rows = q[0];
  const int64_t heads = q[1];
  const int64_t index_dim = q[2];
  const Shape score = golden_->shape("index.score");
  StepCaches caches(*backend_, operands_, {.index_dim = index_dim});
  caches.fill_keys(0, golden_->floats("index.k"));
  caches.set_committed(0, score[1] - rows);  // the last row sees them all
  const int64_t rank = heads * index_dim;
  const IndexSelectParams p{
      .x = operands_.put_act(golden_->floats("index.proj"), {rows, heads}),
      .r = operands_.put_act(golden_->floats("index.q"), {rows, rank}),
      .rows = caches.resolve(plan_rows(0, 0, static_cast<int32_t>(rows))),
      .slots = caches.slots,
      .wq_b = operands_.place(operands_.put_act(identity(rank), {rank, rank})),
      .weights_proj = operands_.put_act(identity(heads), {heads, heads}),
      .rope = no_rope(),
      .pages = caches.pages,
      .restrict_to = {},
      .publish = {},
      .selected = operands_.zeros(DType::kI32, {rows, 4}),
      .num_selected = operands_.zeros(DType::kI32, {rows}),
      .trace_query = operands_.zeros(DType::kF32, q),
      .trace_scores = operands_.zeros(DType::kF32, score)};
  backend_->index_select(p);
  EXPECT_EQ(operands_.floats(p.trace_query), golden_->floats("index.q"));
  EXPECT_TRUE(close_by_row(operands_.floats(p.trace_scores), golden_->floats("index.score"),
                           score[1], kTolerance));
}

TEST_P(AttentionOps, CandidatesMatchGoldens) {
  open();
  if (IsSkipped()) return;
  if (!is_exact()) GTEST_SKIP() << "bf16 cannot hold the golden scores";
  // Head h meets entry h alone, so its weight is the score, but for Hi^-½ · Di^-½ = 1/64.
  constexpr int64_t kDim = 64;
  const Shape shape = golden_->shape("candidates.score");
  const int64_t rows = shape[1];
  const int64_t entries = shape[2];
  StepCaches caches(*backend_, operands_, {.index_dim = kDim});
  caches.fill_keys(
      0, std::span<const float>(identity(kDim)).first(static_cast<size_t>(entries * kDim)));
  std::vector<float> proj(static_cast<size_t>(kDim * entries));
  for (int64_t i = 0; i < entries; ++i) proj[static_cast<size_t>(i * entries + i)] = 1;
  const std::vector<float> ones(static_cast<size_t>(rows), 1.0F);
  const CandidateBlocks blocks{.blocks = operands_.zeros(DType::kI32, {rows, 2}),
                               .count = operands_.zeros(DType::kI32, {rows}),
                               .block_size = 8};
  IndexSelectParams p{.x = operands_.put_act(golden_->floats("candidates.score"), {rows, entries}),
                      .r = operands_.put_act(ones, {rows, 1}),
                      .rows = caches.resolve(plan_rows(0, 0, static_cast<int32_t>(rows))),
                      .slots = caches.slots,
                      .wq_b = operands_.place(operands_.put_f32(identity(kDim), {kDim * kDim, 1})),
                      .weights_proj = operands_.put_f32(proj, {kDim, entries}),
                      .rope = no_rope(),
                      .pages = caches.pages,
                      .restrict_to = {},
                      .publish = blocks,
                      .selected = operands_.zeros(DType::kI32, {rows, 6}),
                      .num_selected = operands_.zeros(DType::kI32, {rows}),
                      .trace_query = {},
                      .trace_scores = {}};
  backend_->index_select(p);
  const std::vector<int64_t> mask = golden_->ints("candidates.mask");
  const std::vector<int64_t> kept = operands_.ints(blocks.blocks);
  const std::vector<int64_t> count = operands_.ints(blocks.count);
  p.publish = {};
  p.restrict_to = blocks;
  backend_->index_select(p);
  const std::vector<int64_t> inside = golden_->ints("candidates.top6_inside");
  const std::vector<int64_t> selected = operands_.ints(p.selected);
  const std::vector<int64_t> num_selected = operands_.ints(p.num_selected);
  for (int64_t b = 0; b < rows; ++b) {
    std::vector<int64_t> got_mask(static_cast<size_t>(entries));
    for (int64_t i = 0; i < count[static_cast<size_t>(b)]; ++i) {
      std::fill_n(got_mask.begin() + kept[static_cast<size_t>(2 * b + i)] * 8, 8, 1);
    }
    std::vector<int64_t> got_inside(static_cast<size_t>(entries));
    for (int64_t i = 0; i < num_selected[static_cast<size_t>(b)]; ++i) {
      got_inside[static_cast<size_t>(selected[static_cast<size_t>(6 * b + i)])] = 1;
    }
    const auto row_of = [&](const std::vector<int64_t>& all) {
      return std::vector(all.begin() + b * entries, all.begin() + (b + 1) * entries);
    };
    EXPECT_EQ(got_mask, row_of(mask)) << "row " << b;
    EXPECT_EQ(got_inside, row_of(inside)) << "row " << b;
  }
}

/// The best `count` of `scores` in order: a full sort, ties by place.
std::vector<int64_t> best_of(const std::vector<double>& scores, int64_t count) {
  std::vector<int64_t> places(scores.size());
  std::iota(places.begin(), places.end(), 0);
  std::ranges::stable_sort(places, [&](int64_t a, int64_t b) {
    return scores[static_cast<size_t>(a)] > scores[static_cast<size_t>(b)];
  });
  places.resize(std::min(places.size(), static_cast<size_t>(count)));
  std::ranges::sort(places);
  return places;
}

TEST_P(AttentionOps, IndexSelectEqualsBruteForceWithManyTies) {
  constexpr uint64_t kSeed = 41;
  SCOPED_TRACE(::testing::Message() << "seed " << kSeed);
  constexpr int64_t kHeads = 4;
  constexpr int64_t kDim = 32;
  constexpr int64_t kTokens = 300;
  constexpr int64_t kBlock = 4;
  for (const int32_t ratio : {1, 2}) {
    for (const int64_t k : {1, 7, 40}) {
      testing::Random random(kSeed + static_cast<uint64_t>(k));
      StepCaches caches(*backend_, operands_, {.index_dim = kDim, .ratio = ratio});
      // Small whole numbers: every order of fp32 sums is exact, and most scores occur often.
      const auto whole = [&](int64_t size, int64_t bound) {
        std::vector<float> values(static_cast<size_t>(size));
        for (float& v : values) v = static_cast<float>(random.below(2 * bound + 1) - bound);
        return values;
      };
      const int64_t entries = kTokens / ratio;
      const std::vector<float> keys = whole(entries * kDim, 1);
      const std::vector<float> queries = whole(kHeads * kDim, 1);
      const std::vector<float> weights = whole(kTokens * kHeads, 2);
      caches.fill_keys(0, keys);
      const std::vector<float> ones(kTokens, 1.0F);
      const CandidateBlocks blocks{.blocks = operands_.zeros(DType::kI32, {kTokens, 9}),
                                   .count = operands_.zeros(DType::kI32, {kTokens}),
                                   .block_size = kBlock};
      std::vector<float> columns(static_cast<size_t>(kHeads * kDim * 32));
      for (size_t i = 0; i < queries.size(); ++i) columns[i * 32] = queries[i];
      std::vector<float> r(kTokens * 32);
      for (size_t b = 0; b < kTokens; ++b) r[b * 32] = 1;
      IndexSelectParams p{.x = operands_.put_act(weights, {kTokens, kHeads}),
                          .r = operands_.put_act(r, {kTokens, 32}),
                          .rows = caches.resolve(plan_rows(0, 0, kTokens)),
                          .slots = caches.slots,
                          .wq_b = operands_.place(operands_.put_act(columns, {kHeads * kDim, 32})),
                          .weights_proj = operands_.put_act(identity(kHeads), {kHeads, kHeads}),
                          .rope = no_rope(),
                          .pages = caches.pages,
                          .restrict_to = {},
                          .publish = blocks,
                          .selected = operands_.zeros(DType::kI32, {kTokens, k}),
                          .num_selected = operands_.zeros(DType::kI32, {kTokens}),
                          .trace_query = {},
                          .trace_scores = {}};
      const auto lists = [&](const TensorView& values, const TensorView& counts) {
        const std::vector<int64_t> all = operands_.ints(values);
        const std::vector<int64_t> sizes = operands_.ints(counts);
        std::vector<std::vector<int64_t>> rows;
        for (size_t b = 0; b < sizes.size(); ++b) {
          const auto first = all.begin() + static_cast<int64_t>(b) * values.dim(1);
          rows.emplace_back(first, first + sizes[b]);
        }
        return rows;
      };
      backend_->index_select(p);
      const auto free_choice = lists(p.selected, p.num_selected);
      const auto kept = lists(blocks.blocks, blocks.count);
      p.publish = {};
      p.restrict_to = blocks;
      backend_->index_select(p);
      const auto restricted = lists(p.selected, p.num_selected);

      for (int64_t b = 0; b < kTokens; ++b) {
        SCOPED_TRACE(::testing::Message() << "ratio " << ratio << ", k " << k << ", row " << b);
        const auto row = static_cast<size_t>(b);
        std::vector<double> scores;
        for (int64_t e = 0; e < (b + 1) / ratio; ++e) {
          double sum = 0;
          for (int64_t h = 0; h < kHeads; ++h) {
            double similarity = 0;
            for (int64_t i = 0; i < kDim; ++i) {
              similarity += static_cast<double>(queries[static_cast<size_t>(h * kDim + i)]) *
                            static_cast<double>(keys[static_cast<size_t>(e * kDim + i)]);
            }
            sum += static_cast<double>(weights[static_cast<size_t>(b * kHeads + h)]) *
                   std::max(similarity, 0.0);
          }
          scores.push_back(sum);
        }
        EXPECT_EQ(free_choice[row], best_of(scores, k));
        std::vector<double> block_scores;
        for (size_t e = 0; e < scores.size(); ++e) {
          if (e % kBlock == 0) block_scores.push_back(scores[e]);
          block_scores.back() = std::max(block_scores.back(), scores[e]);
        }
        if (!block_scores.empty()) block_scores.back() = 1e30;
        EXPECT_EQ(kept[row], best_of(block_scores, 9));
        std::vector<int64_t> candidates;
        std::vector<double> candidate_scores;
        for (const int64_t block : kept[row]) {
          for (int64_t e = block * kBlock; e < (block + 1) * kBlock; ++e) {
            if (e >= static_cast<int64_t>(scores.size())) break;
            candidates.push_back(e);
            candidate_scores.push_back(scores[static_cast<size_t>(e)]);
          }
        }
        std::vector<int64_t> want;
        for (const int64_t place : best_of(candidate_scores, k)) {
          want.push_back(candidates[static_cast<size_t>(place)]);
        }
        EXPECT_EQ(restricted[row], want);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, AttentionOps, ::testing::ValuesIn(suite().backends), case_name);

}  // namespace
}  // namespace deepinfer::ops
