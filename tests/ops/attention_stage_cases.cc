// The attention of a layer from its golden input: projections, compressor, indexer, attention over
// a whole sequence. Tolerances: tests/data/README.md, "Stages".
#include <algorithm>
#include <cmath>

#include "tensor/quantize.h"
#include "tests/ops/stage_test.h"
#include "tests/ops/step_caches.h"

namespace deepinfer::ops {
namespace {

using testing::few_changed;

class AttentionStages : public StageTest {
 protected:
  /// Rows of one layer and what its projections make of them.
  struct Layer {
    RowBatch rows;
    TensorView x, r, q, window_codes, window_scales;
  };

  /// All positions as one step, or the traced ones each as a step of its own.
  RowBatch addresses(bool whole) {
    if (whole) return caches_->resolve(plan_rows(0, 0, static_cast<int32_t>(num_tokens_)));
    RowBatch rows = caches_->resolve(plan_rows(0, 0, static_cast<int32_t>(num_rows())));
    rows.position = operands_.put(testing::to_tensor(rows_, {num_rows()}));
    rows.span_first = rows.position;
    rows.span_begin = rows.span_rows;
    const std::vector<int32_t> ones(rows_.size(), 1);
    rows.span_size = operands_.put_i32(ones, {num_rows()});
    return rows;
  }

  Layer project(bool whole) {
    Layer layer;
    layer.rows = addresses(whole);
    const int64_t n = layer.rows.position.dim(0);
    const std::string input = in_layer("attn_in");
    layer.x = whole ? operands_.put_act(trace_->floats(input), {n, d_}) : act(input, {n, d_});
    const int64_t heads = weights_->shape(in_layer("attn.attn_sink"))[0];
    const int64_t rank = weights_->shape(in_layer("attn.wq_a.weight"))[0];
    layer.r = operands_.zeros_act({n, rank});
    layer.q = operands_.zeros_act({n, heads, kHeadDim});
    layer.window_codes = operands_.zeros(DType::kE4M3, {n, kHeadDim});
    layer.window_scales = operands_.zeros(DType::kE8M0, {n, kHeadDim / 32});
    backend_->qkv({.x = layer.x,
                   .position = layer.rows.position,
                   .wq_a = fp8("attn.wq_a"),
                   .q_norm = plain(in_layer("attn.q_norm.weight")),
                   .wq_b = fp8("attn.wq_b"),
                   .wkv = fp8("attn.wkv"),
                   .kv_norm = plain(in_layer("attn.kv_norm.weight")),
                   .rope = rope(),
                   .eps = 1e-20F,
                   .r = layer.r,
                   .q = layer.q,
                   .window_codes = layer.window_codes,
                   .window_scales = layer.window_scales});
    return layer;
  }

  /// The traced entries of a tensor, or the first ones of a whole tensor.
  void expect_entries(std::span<const float> all, int64_t size, const std::string& name,
                      double share, float relative) {
    std::vector<float> got;
    std::vector<float> want;
    if (trace_->has(in_layer(name))) {
      want = trace_->floats(in_layer(name));
      got.assign(all.begin(), all.begin() + static_cast<int64_t>(want.size()));
    } else {
      // Row r of the traced rows is entry r.
      want = trace_->floats(in_layer(name + "@rows"));
      const auto entries = static_cast<int64_t>(all.size()) / size;
      for (const int64_t row : rows_) {
        if (row >= entries) break;
        got.insert(got.end(), all.begin() + row * size, all.begin() + (row + 1) * size);
      }
    }
    ASSERT_EQ(got.size(), want.size()) << name;
    EXPECT_TRUE(few_but_small_changed(got, want, size, share, relative, last_digits())) << name;
  }

  float last_digits() const { return is_exact() ? 1e-5F : 1e-4F; }
  /// Changed elements, not counting differences in the last digits of fp32 sums: up to `small` of
  /// the row's largest magnitude.
  ::testing::AssertionResult few_but_small_changed(std::vector<float> got,
                                                   std::span<const float> want, int64_t row_size,
                                                   double share, float relative,
                                                   float small) const {
    const auto size = static_cast<size_t>(row_size);
    for (size_t begin = 0; begin < want.size(); begin += size) {
      float largest = 0;
      for (const float v : want.subspan(begin, size)) largest = std::max(largest, std::fabs(v));
      for (size_t i = begin; i < begin + size; ++i) {
        if (std::fabs(got[i] - want[i]) <= small * largest) got[i] = want[i];
      }
    }
    return few_changed(got, want, row_size, share, relative);
  }

  void compress(const Layer& layer);
  void select(const Layer& layer, bool whole);
  void attend(const Layer& layer);
  void expect_choice(const TensorView& lists, const TensorView& counts, int64_t block,
                     const std::string& name, bool whole);

  static constexpr int64_t kHeadDim = 512;
  static constexpr int64_t kIndexHeads = 8;
  static constexpr int64_t kIndexDim = 128;
  int64_t num_tokens_ = 0;
  std::optional<StepCaches> caches_;  // of the last KV source
  CandidateBlocks blocks_;            // of all positions
  TensorView selected_, num_selected_;
  std::vector<float> largest_score_;  // of each row of the last selection
};

void AttentionStages::compress(const Layer& layer) {
  const int32_t ratio = model_->ratios[static_cast<size_t>(layer_)];
  const int64_t n = layer.x.dim(0);
  const CompressParams p{
      .x = layer.x,
      .rows = layer.rows,
      .slots = caches_->slots,
      .wkv = plain(in_layer("attn.compressor.wkv.weight")),
      .wgate = ratio == 2 ? plain(in_layer("attn.compressor.wgate.weight")) : TensorView(),
      .norm = plain(in_layer("attn.compressor.norm.weight")),
      .index_wk = plain(in_layer("attn.indexer.wk.weight")),
      .index_norm = plain(in_layer("attn.indexer.k_norm.weight")),
      .rope = rope(),
      .eps = 1e-20F,
      .pages = caches_->pages,
      .pending = caches_->pending,
      .trace_latent = operands_.zeros(DType::kF32, {n, kHeadDim})};
  backend_->compress(p);
  const std::vector<float> rows = operands_.floats(p.trace_latent);
  std::vector<float> latents;
  for (int64_t t = ratio - 1; t < n; t += ratio) {
    latents.insert(latents.end(), rows.begin() + t * kHeadDim, rows.begin() + (t + 1) * kHeadDim);
  }
  expect_entries(latents, kHeadDim, "latent", 0.01, 0.05F);

  const int64_t entries = n / ratio;
  expect_entries(caches_->entries(0, entries), kHeadDim, "compressed_kv", 0.01, 0.1F);
  expect_entries(caches_->keys(0, entries), kIndexDim, "index_k", 0.01, 0.1F);
}

/// Lists of entries (or of blocks of `block` entries) against the trace's bits. A choice may differ
/// only where the distance to the cut is tiny; in released mode also, rarely, where it is small:
/// one flipped FP8 code in front of wq_b moves all scores of a row.
void AttentionStages::expect_choice(const TensorView& lists, const TensorView& counts,
                                    int64_t block, const std::string& name, bool whole) {
  const std::vector<int64_t> bits = trace_->ints(in_layer(name + "_bits"));
  const int64_t bytes = trace_->shape(in_layer(name + "_bits"))[1];
  const std::string margin_name =
      in_layer(name == "selected" ? "select_margin" : "candidate_margin");
  std::vector<float> margins(bits.size() / static_cast<size_t>(bytes), 1e30F);
  if (trace_->has(margin_name)) margins = trace_->floats(margin_name);

  const std::vector<int64_t> got = operands_.ints(lists);
  const std::vector<int64_t> sizes = operands_.ints(counts);
  const int64_t entries = num_tokens_ / caches_->sizes.ratio;
  size_t moved = 0;
  for (size_t b = 0; b < sizes.size(); ++b) {
    const int64_t position = whole ? static_cast<int64_t>(b) : rows_[b];
    std::vector<int64_t> row(static_cast<size_t>(bytes));
    for (int64_t i = 0; i < sizes[b]; ++i) {
      const int64_t first = got[static_cast<size_t>(static_cast<int64_t>(b) * lists.dim(1) + i)];
      for (int64_t e = first * block; e < std::min((first + 1) * block, entries); ++e) {
        row[static_cast<size_t>(e / 8)] |= int64_t{1} << (e % 8);
      }
    }
    if (std::equal(row.begin(), row.end(), bits.begin() + position * bytes)) continue;
    const float margin = margins[static_cast<size_t>(position)] / largest_score_[b];
    if (margin < 1e-4F) continue;
    ++moved;
    EXPECT_LT(margin, is_exact() ? 1e-4F : 1e-2F) << name << " at " << position;
  }
  EXPECT_LE(moved, sizes.size() / 100) << name;
}

void AttentionStages::select(const Layer& layer, bool whole) {
  const int64_t n = layer.x.dim(0);
  const int64_t entries = num_tokens_ / caches_->sizes.ratio;
  selected_ = operands_.zeros(DType::kI32, {n, model_->index_topk});
  num_selected_ = operands_.zeros(DType::kI32, {n});
  IndexSelectParams p{.x = layer.x,
                      .r = layer.r,
                      .rows = layer.rows,
                      .slots = caches_->slots,
                      .wq_b = fp8("attn.indexer.wq_b"),
                      .weights_proj = plain(in_layer("attn.indexer.weights_proj.weight")),
                      .rope = rope(),
                      .pages = caches_->pages,
                      .restrict_to = {},
                      .publish = {},
                      .selected = selected_,
                      .num_selected = num_selected_,
                      .trace_query = operands_.zeros(DType::kF32, {n, kIndexHeads, kIndexDim}),
                      .trace_scores = operands_.zeros(DType::kF32, {n, entries})};
  if (layer_ == model_->candidate_layer) {
    blocks_ = {.blocks = operands_.zeros(DType::kI32, {n, model_->candidate_blocks}),
               .count = operands_.zeros(DType::kI32, {n}),
               .block_size = model_->candidate_block_size};
    p.publish = blocks_;
  } else if (layer_ > model_->candidate_layer) {
    p.restrict_to = blocks_;
    if (!whole) {
      const auto traced = [&](const TensorView& all, const Shape& shape) {
        std::vector<int32_t> values;
        for (const int64_t v : select_rows(operands_.ints(all), all.shape())) {
          values.push_back(static_cast<int32_t>(v));
        }
        return operands_.put_i32(values, shape);
      };
      p.restrict_to.blocks = traced(blocks_.blocks, {n, model_->candidate_blocks});
      p.restrict_to.count = traced(blocks_.count, {n});
    }
  }
  backend_->index_select(p);

  std::vector<float> scores = operands_.floats(p.trace_scores);
  largest_score_.clear();
  for (auto row = scores.begin(); row != scores.end(); row += entries) {
    const auto [low, high] = std::minmax_element(row, row + entries);
    largest_score_.push_back(std::max(-*low, *high));
  }
  expect_choice(selected_, num_selected_, 1, "selected", whole);
  if (!p.publish.blocks.empty()) {
    expect_choice(blocks_.blocks, blocks_.count, model_->candidate_block_size, "candidates", whole);
  }
  std::vector<float> want = at_rows(in_layer("index_scores"));
  if (whole) scores = select_rows(scores, p.trace_scores.shape());
  // A row alone does not show the scores of entries after it.
  for (int64_t i = 0; i < num_rows() && !whole; ++i) {
    const int64_t visible = (rows_[static_cast<size_t>(i)] + 1) / caches_->sizes.ratio;
    std::fill(want.begin() + i * entries + visible, want.begin() + (i + 1) * entries, 0.0F);
  }
  EXPECT_TRUE(few_but_small_changed(scores, want, entries, 0.03, 0.05F, last_digits()))
      << "index_scores";
}

void AttentionStages::attend(const Layer& layer) {
  const Shape shape = layer.q.shape();
  const bool compressed = model_->ratios[static_cast<size_t>(layer_)] > 0;
  const SparseAttentionParams p{.q = layer.q,
                                .rows = layer.rows,
                                .slots = caches_->slots,
                                .window = model_->window,
                                .rings = caches_->rings,
                                .window_codes = layer.window_codes,
                                .window_scales = layer.window_scales,
                                .window_floor = {},
                                .pages = caches_->pages,
                                .selected = compressed ? selected_ : TensorView(),
                                .num_selected = compressed ? num_selected_ : TensorView(),
                                .sink = plain(in_layer("attn.attn_sink")),
                                .rope = rope(),
                                .out = operands_.zeros_act(shape),
                                .trace_core = operands_.zeros(DType::kF32, shape)};
  backend_->sparse_attention(p);
  const std::vector<float> core = select_rows(operands_.floats(p.trace_core), shape);
  // From golden queries and keys far fewer: a flipped bf16 of a query, or FP8 or FP4 code of a key,
  // moves all of a head's row a little (in exact mode by less than a bf16 step).
  const float small = is_exact() ? 2e-3F : 1e-4F;
  EXPECT_TRUE(
      few_but_small_changed(core, at_rows(in_layer("attn_core")), shape[2], 0.03, 0.05F, small))
      << "attn_core";
}

TEST_P(AttentionStages, AttentionMatchesTraces) {
  for_each_layer([&] {
    const bool whole = trace_->has(in_layer("attn_in"));
    const bool is_source = weights_->has(in_layer("attn.compressor.wkv.weight"));
    const bool is_index_source = weights_->has(in_layer("attn.indexer.wq_b.weight"));
    const int32_t ratio = model_->ratios[static_cast<size_t>(layer_)];
    if (!whole && !(is_index_source && trace_->has(in_layer("attn_in@rows")))) return;
    num_tokens_ = trace_->shape("ids")[0];
    if (is_source || ratio == 0) {
      caches_.emplace(*backend_, operands_,
                      CacheSizes{.slots = 1,
                                 .head_dim = kHeadDim,
                                 .index_dim = kIndexDim,
                                 .ring_rows = model_->window + 16,
                                 .ratio = std::max(ratio, 1)});
    }
    const Layer layer = project(whole);
    if (is_source) compress(layer);
    if (is_index_source) select(layer, whole);
    if (whole && (ratio == 0 || is_index_source) && has(in_layer("attn_core"))) attend(layer);
  });
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(AttentionStages);
INSTANTIATE_TEST_SUITE_P(Backends, AttentionStages, ::testing::ValuesIn(suite().backends),
                         case_name);

}  // namespace
}  // namespace deepinfer::ops
