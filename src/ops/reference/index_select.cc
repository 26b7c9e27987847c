#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/addresses.h"
#include "ops/reference/reference.h"
#include "tensor/quantize.h"

namespace deepinfer::ops::reference {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// The `capacity` highest of scores that are offered by ascending place; of equal scores (-0 and +0
/// are equal) the lowest places. Time is linear in the offers, memory in the capacity: a context
/// may have a million entries. No score may be NaN.
class Best {
 public:
  explicit Best(int64_t capacity) : capacity_(static_cast<size_t>(capacity)) {}

  void offer(float score, int64_t place) {
    // An equal score loses: its place is higher than all before.
    if (score <= bound_ && is_full_) return;
    kept_.push_back({score, static_cast<int32_t>(place)});
    if (kept_.size() >= 2 * capacity_) shrink();
  }

  /// The places kept, ascending.
  std::vector<int32_t> places() {
    if (kept_.size() > capacity_) shrink();
    std::vector<int32_t> result;
    result.reserve(kept_.size());
    for (const Offer& offer : kept_) result.push_back(offer.place);
    std::ranges::sort(result);
    return result;
  }

 private:
  struct Offer {
    float score;
    int32_t place;
  };

  static bool is_better(const Offer& a, const Offer& b) {
    return a.score != b.score ? a.score > b.score : a.place < b.place;
  }

  /// Drops all but the best. `kept_` holds at least `capacity_` offers.
  void shrink() {
    is_full_ = true;
    bound_ = kInfinity;
    if (capacity_ > 0) {
      const auto last = kept_.begin() + static_cast<std::ptrdiff_t>(capacity_) - 1;
      std::nth_element(kept_.begin(), last, kept_.end(), is_better);
      bound_ = last->score;
    }
    kept_.resize(capacity_);
  }

  size_t capacity_;
  std::vector<Offer> kept_;
  bool is_full_ = false;
  float bound_ = -kInfinity;  // the lowest score kept, once there are `capacity_`
};

/// Writes a row's list and its length.
void store_list(std::span<const int32_t> list, const TensorView& lists, const TensorView& count,
                int64_t b) {
  std::ranges::copy(list, lists.row<int32_t>(b));
  count.as<int32_t>()[b] = static_cast<int32_t>(list.size());
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

/// Both levels of one row. Blocks are ranges of entries, and so are all the visible ones.
void select_row(const IndexSelectParams& p, int64_t b, const Query& query) {
  std::vector<float> key(static_cast<size_t>(p.wq_b.rows() / p.weights_proj.dim(0)));
  const int64_t visible = (p.rows.position.as<const int64_t>()[b] + 1) / p.pages.ratio;
  Best best(p.selected.dim(1));
  /// Lets visible entries [begin, end) compete; returns the best score among them.
  const auto compete = [&](int64_t begin, int64_t end) {
    float best_score = -kInfinity;
    for (int64_t e = begin; e < std::min(end, visible); ++e) {
      const float score = score_of(query, entry_at(p.pages, p.slots, query.slot, e), key);
      best.offer(score, e);
      best_score = std::max(best_score, score);
    }
    return best_score;
  };

  if (!p.restrict_to.blocks.empty()) {
    const auto* blocks = p.restrict_to.blocks.row<const int32_t>(b);
    for (int32_t i = 0; i < p.restrict_to.count.as<const int32_t>()[b]; ++i) {
      compete(blocks[i] * p.restrict_to.block_size, (blocks[i] + 1) * p.restrict_to.block_size);
    }
  } else if (!p.publish.blocks.empty()) {
    const int64_t size = p.publish.block_size;
    Best blocks(p.publish.blocks.dim(1));
    for (int64_t begin = 0; begin < visible; begin += size) {
      const float score = compete(begin, begin + size);
      // The block of the newest visible entry comes before all others.
      blocks.offer(begin + size >= visible ? kInfinity : score, begin / size);
    }
    store_list(blocks.places(), p.publish.blocks, p.publish.count, b);
  } else {
    compete(0, visible);
  }
  store_list(best.places(), p.selected, p.num_selected, b);
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
