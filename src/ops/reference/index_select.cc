#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "ops/reference/reference.h"
#include "ops/reference/rows.h"
#include "tensor/quantize.h"

namespace deepinfer::ops::reference {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// Places of the `k` highest scores, ascending; of equal scores (-0 and +0 are equal) the lowest
/// places. All of them if there are no more than k. No score is NaN.
std::vector<int32_t> top_k(std::span<const float> scores, int64_t k) {
  std::vector<int32_t> places(scores.size());
  std::iota(places.begin(), places.end(), 0);
  if (static_cast<int64_t>(scores.size()) <= k) return places;
  const auto better = [&](int32_t a, int32_t b) {
    const float score_a = scores[static_cast<size_t>(a)];
    const float score_b = scores[static_cast<size_t>(b)];
    return score_a != score_b ? score_a > score_b : a < b;
  };
  std::nth_element(places.begin(), places.begin() + k, places.end(), better);
  places.resize(static_cast<size_t>(k));
  std::ranges::sort(places);
  return places;
}

/// The query side of one row.
struct Query {
  int64_t slot;
  std::span<const float> heads;    // [Hi, Di]: rotated, quantised
  std::span<const float> weights;  // [Hi]: x · weights_proj · Hi^-½
};

/// score(e) of spec/model.md §5.
float score_of(const Query& query, const StoredEntry& entry, std::span<float> key) {
  dequantize_fp4_index(entry.key_codes, entry.key_scales, key);
  const auto index_dim = static_cast<int64_t>(key.size());
  float sum = 0;
  for (size_t h = 0; h < query.weights.size(); ++h) {
    const float similarity = dot(query.heads.data() + h * key.size(), key.data(), index_dim);
    sum += query.weights[h] * std::max(similarity, 0.0F);
  }
  const float score = sum * (1.0F / std::sqrt(static_cast<float>(index_dim)));
  // Infinite weights can make a NaN, which no order has a place for.
  return std::isnan(score) ? -kInfinity : score;
}

/// The rotated, quantised queries of all rows, [B, Hi·Di].
std::vector<float> project_queries(const Context& context, const IndexSelectParams& p) {
  const int64_t rows = p.r.dim(0);
  const int64_t heads = p.weights_proj.dim(0);
  const auto size = static_cast<size_t>(p.wq_b.rows());
  const size_t index_dim = size / static_cast<size_t>(heads);
  std::vector<float> queries(static_cast<size_t>(rows) * size);
  linear(context, p.wq_b, load_rows(p.r), rows, queries, InputRounding::kFp8, ResultRounding::kAct);
  context.pool->parallel_for(rows, 4, [&](int64_t begin, int64_t end) {
    std::vector<uint8_t> codes(index_dim / 2);
    std::vector<uint8_t> scales(index_dim / kFp8Block);
    for (int64_t b = begin; b < end; ++b) {
      const std::span<float> query = row_of(queries, b, size);
      for (int64_t h = 0; h < heads; ++h) {
        const std::span<float> head = row_of(query, h, index_dim);
        rotate(context, head, p.rope, p.rows.position.as<const int64_t>()[b]);
        quantize_fp4_index(head, codes.data(), scales.data());
        dequantize_fp4_index(codes.data(), scales.data(), head);
      }
      if (!p.trace_query.empty()) store_row(query, p.trace_query, b);
    }
  });
  return queries;
}

/// The head weights of all rows, [B, Hi].
std::vector<float> project_weights(const Context& context, const IndexSelectParams& p) {
  const int64_t rows = p.x.dim(0);
  const int64_t heads = p.weights_proj.dim(0);
  std::vector<float> weights(static_cast<size_t>(rows * heads));
  linear(context, {.weight = p.weights_proj, .scale = {}}, load_rows(p.x), rows, weights,
         InputRounding::kNone, ResultRounding::kAct);
  const float factor = 1.0F / std::sqrt(static_cast<float>(heads));
  for (float& w : weights) w *= factor;
  return weights;
}

/// Entries that compete in row b, ascending: the visible ones, of the candidate blocks if there are
/// any.
std::vector<int32_t> competitors(const IndexSelectParams& p, int64_t b, int64_t num_visible) {
  if (p.restrict_to.blocks.empty()) {
    std::vector<int32_t> all(static_cast<size_t>(num_visible));
    std::iota(all.begin(), all.end(), 0);
    return all;
  }
  std::vector<int32_t> entries;
  const auto* blocks = p.restrict_to.blocks.row<const int32_t>(b);
  for (int32_t i = 0; i < p.restrict_to.count.as<const int32_t>()[b]; ++i) {
    const int64_t first = blocks[i] * p.restrict_to.block_size;
    const int64_t end = std::min(first + p.restrict_to.block_size, num_visible);
    for (int64_t e = first; e < end; ++e) entries.push_back(static_cast<int32_t>(e));
  }
  return entries;
}

/// The candidate level: keeps the best blocks by the best score in each; the block of the newest
/// visible entry comes before all others.
void publish_blocks(const IndexSelectParams& p, int64_t b, std::span<const int32_t> entries,
                    std::span<const float> scores) {
  std::vector<float> best;
  int64_t first_block = 0;
  if (!entries.empty()) {
    const int64_t block_size = p.publish.block_size;
    first_block = entries.front() / block_size;
    best.assign(static_cast<size_t>(entries.back() / block_size - first_block + 1), -kInfinity);
    for (size_t i = 0; i < entries.size(); ++i) {
      float& block = best[static_cast<size_t>(entries[i] / block_size - first_block)];
      block = std::max(block, scores[i]);
    }
    best.back() = kInfinity;
  }
  const std::vector<int32_t> kept = top_k(best, p.publish.blocks.dim(1));
  auto* blocks = p.publish.blocks.row<int32_t>(b);
  std::ranges::copy(kept, blocks);
  p.publish.count.as<int32_t>()[b] = static_cast<int32_t>(kept.size());
}

/// Scores of every entry that the row's slot has at the end of the step, visible or not.
void trace_scores(const IndexSelectParams& p, int64_t b, const Query& query, std::span<float> key) {
  const std::span<float> out(p.trace_scores.row<float>(b),
                             static_cast<size_t>(p.trace_scores.dim(1)));
  std::ranges::fill(out, 0.0F);
  const int64_t end =
      p.rows.span_first.as<const int64_t>()[b] + p.rows.span_size.as<const int32_t>()[b];
  const int64_t count = std::min(end / p.pages.ratio, p.trace_scores.dim(1));
  for (int64_t e = 0; e < count; ++e) {
    if (const auto entry = find_entry(p.pages, p.slots, query.slot, e)) {
      out[static_cast<size_t>(e)] = score_of(query, *entry, key);
    }
  }
}

void select_row(const IndexSelectParams& p, int64_t b, const Query& query) {
  std::vector<float> key(static_cast<size_t>(p.wq_b.rows() / p.weights_proj.dim(0)));
  const int64_t position = p.rows.position.as<const int64_t>()[b];
  const std::vector<int32_t> entries = competitors(p, b, (position + 1) / p.pages.ratio);
  std::vector<float> scores(entries.size());
  for (size_t i = 0; i < entries.size(); ++i) {
    scores[i] = score_of(query, entry_at(p.pages, p.slots, query.slot, entries[i]), key);
  }
  if (!p.publish.blocks.empty()) publish_blocks(p, b, entries, scores);

  const std::vector<int32_t> places = top_k(scores, p.selected.dim(1));
  auto* selected = p.selected.row<int32_t>(b);
  for (const int32_t place : places) *selected++ = entries[static_cast<size_t>(place)];
  p.num_selected.as<int32_t>()[b] = static_cast<int32_t>(places.size());
  if (!p.trace_scores.empty()) trace_scores(p, b, query, key);
}

}  // namespace

void index_select(const Context& context, const IndexSelectParams& p) {
  const auto query_size = static_cast<size_t>(p.wq_b.rows());
  const auto heads = static_cast<size_t>(p.weights_proj.dim(0));
  std::vector<float> queries = project_queries(context, p);
  std::vector<float> weights = project_weights(context, p);
  context.pool->parallel_for(p.x.dim(0), 1, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      select_row(p, b,
                 {.slot = p.rows.slot.as<const int32_t>()[b],
                  .heads = row_of(queries, b, query_size),
                  .weights = row_of(weights, b, heads)});
    }
  });
}

}  // namespace deepinfer::ops::reference
