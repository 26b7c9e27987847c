#include "ops/cost.h"

#include <algorithm>
#include <vector>

namespace deepinfer::ops {
namespace {

double bytes_of(std::initializer_list<TensorView> views) {
  int64_t bytes = 0;
  for (const TensorView& view : views) {
    if (!view.empty()) bytes += view.num_bytes();
  }
  return static_cast<double>(bytes);
}

double bytes_of(const QuantView& weight) {
  return bytes_of({weight.weight, weight.scale});
}

/// Operations of a product with `num_rows` rows.
double product(const QuantView& weight, int64_t num_rows) {
  return 2.0 * static_cast<double>(weight.rows() * weight.cols() * num_rows);
}
double product(const TensorView& weight, int64_t num_rows) {
  return product(QuantView{.weight = weight, .scale = {}}, num_rows);
}

/// Entries that the row at `position` can see.
int64_t visible_entries(const RowBatch& rows, int64_t b, int32_t ratio) {
  return (rows.position.as<const int64_t>()[b] + 1) / ratio;
}

/// Sums a number per slot: the largest of the slot's rows among the first `num_rows`.
template <typename CountOf>
int64_t largest_per_slot(const RowBatch& rows, int64_t num_rows, CountOf&& count_of) {
  // A slot's rows share span_begin, and there are at most as many spans as rows.
  std::vector<int64_t> largest(static_cast<size_t>(rows.position.dim(0)));
  const auto* span = rows.span_begin.as<const int32_t>();
  for (int64_t b = 0; b < num_rows; ++b) {
    int64_t& slot = largest[static_cast<size_t>(span[b])];
    slot = std::max<int64_t>(slot, count_of(b));
  }
  int64_t sum = 0;
  for (const int64_t count : largest) sum += count;
  return sum;
}

}  // namespace

Cost cost_of(const ResolveRowsParams& p) {
  return {.bytes = bytes_of({p.out.token, p.out.position, p.out.slot, p.out.role, p.out.context})};
}

Cost cost_of(const EmbedParams& p) {
  const double row = static_cast<double>(p.table.dim(1) * size_of(p.table.dtype()));
  return {.bytes = row * static_cast<double>(p.token.dim(0)) + bytes_of({p.streams})};
}

Cost cost_of(const EngramParams& p) {
  const int64_t rows = p.streams.dim(0);
  const int64_t width = p.table.cols();
  const int64_t gathered = rows * p.primes.dim(0) * (width + width / 32);
  return {.bytes = static_cast<double>(gathered) + bytes_of(p.wkv) + 2 * bytes_of({p.streams}),
          .operations = product(p.wkv, rows)};
}

Cost cost_of(const SiteBeginParams& p) {
  return {.bytes = bytes_of({p.streams, p.fn, p.norm, p.x, p.pre, p.post, p.comb}),
          .operations = product(p.fn, p.streams.dim(0))};
}

Cost cost_of(const QkvParams& p) {
  const int64_t rows = p.x.dim(0);
  const int64_t queries = p.q.dim(0);
  return {.bytes = bytes_of(p.wq_a) + bytes_of(p.wq_b) + bytes_of(p.wkv) +
                   bytes_of({p.x, p.r, p.q, p.window_codes, p.window_scales}),
          .operations = product(p.wq_a, queries) + product(p.wq_b, queries) + product(p.wkv, rows)};
}

Cost cost_of(const CompressParams& p) {
  const int64_t rows = p.x.dim(0);
  const double entries = static_cast<double>(rows) / p.pages.ratio;
  const int64_t head_dim = p.wkv.dim(0);
  const int64_t index_dim = p.index_wk.dim(0);
  const int64_t entry = head_dim / 2 + head_dim / 16 + index_dim / 2 + index_dim / 32;
  Cost cost{
      .bytes = bytes_of({p.x, p.wkv, p.wgate, p.index_wk}) + entries * static_cast<double>(entry),
      .operations = product(p.wkv, rows) + product(p.index_wk, 1) * entries};
  if (!p.wgate.empty()) cost.operations += product(p.wgate, rows);
  return cost;
}

Cost cost_of(const IndexSelectParams& p) {
  const int64_t rows = p.x.dim(0);
  const int64_t heads = p.weights_proj.dim(0);
  const int64_t index_dim = p.wq_b.rows() / heads;
  int64_t scored = 0;
  const auto scored_by = [&](int64_t b) {
    const int64_t visible = visible_entries(p.rows, b, p.pages.ratio);
    if (p.restrict_to.blocks.empty()) return visible;
    return std::min(visible, p.restrict_to.count.as<const int32_t>()[b] * p.restrict_to.block_size);
  };
  for (int64_t b = 0; b < rows; ++b) scored += scored_by(b);
  const int64_t read = largest_per_slot(p.rows, rows, scored_by);
  const int64_t key_bytes = index_dim / 2 + index_dim / 32;
  return {.bytes = bytes_of(p.wq_b) + bytes_of({p.weights_proj, p.x, p.r, p.selected}) +
                   static_cast<double>(read * key_bytes),
          .operations = product(p.wq_b, rows) + product(p.weights_proj, rows) +
                        2.0 * static_cast<double>(heads * index_dim * scored)};
}

Cost cost_of(const SparseAttentionParams& p) {
  const int64_t rows = p.q.dim(0);
  const int64_t head_dim = p.q.dim(2);
  const auto window_of = [&](int64_t b) {
    return std::min(p.window, p.rows.position.as<const int64_t>()[b] + 1);
  };
  const auto selected_of = [&](int64_t b) {
    return p.selected.empty() ? 0 : int64_t{p.num_selected.as<const int32_t>()[b]};
  };
  int64_t keys = 0;
  for (int64_t b = 0; b < rows; ++b) keys += window_of(b) + selected_of(b);
  const int64_t window_rows = largest_per_slot(p.rows, rows, window_of);
  const int64_t entries = largest_per_slot(p.rows, rows, selected_of);
  const int64_t window_bytes = window_rows * (head_dim + head_dim / 32);
  const int64_t entry_bytes = entries * (head_dim / 2 + head_dim / 16);
  return {.bytes = bytes_of({p.q, p.out, p.window_codes, p.window_scales}) +
                   static_cast<double>(window_bytes + entry_bytes),
          // A key meets a head twice: as key and as value.
          .operations = 4.0 * static_cast<double>(p.q.dim(1) * head_dim * keys)};
}

Cost cost_of(const WindowStoreParams& p) {
  return {.bytes = 2 * bytes_of({p.window_codes, p.window_scales})};
}

Cost cost_of(const OutputProjectionParams& p) {
  const int64_t rows = p.o.dim(0);
  return {.bytes = bytes_of(p.wo_a) + bytes_of(p.wo_b) + bytes_of({p.o, p.y}),
          .operations = product(p.wo_a, rows) + product(p.wo_b, rows)};
}

Cost cost_of(const SiteEndParams& p) {
  return {.bytes = bytes_of({p.y, p.post, p.comb}) + 2 * bytes_of({p.streams})};
}

Cost cost_of(const RouteParams& p) {
  return {.bytes = bytes_of({p.x, p.gate, p.bias, p.experts, p.weights}),
          .operations = product(p.gate, p.x.dim(0))};
}

Cost cost_of(const ExpertsParams& p) {
  const int64_t rows = p.x.dim(0);
  const int64_t choices = p.experts.dim(1);
  const auto add = [](Cost& cost, const ExpertWeights& weights, int64_t num_rows) {
    for (const QuantView* w : {&weights.w1, &weights.w3, &weights.w2}) {
      cost.bytes += bytes_of(*w);
      cost.operations += product(*w, num_rows);
    }
  };
  std::vector<int64_t> rows_of(p.routed.size());
  for (int64_t b = 0; b < rows; ++b) {
    for (int64_t i = 0; i < choices; ++i) {
      ++rows_of[static_cast<size_t>(p.experts.row<const int32_t>(b)[i])];
    }
  }
  Cost cost{.bytes = bytes_of({p.x, p.slot_rows, p.shared_rows})};
  add(cost, p.shared, rows);
  for (size_t e = 0; e < rows_of.size(); ++e) {
    if (rows_of[e] > 0) add(cost, p.routed[e], rows_of[e]);
  }
  return cost;
}

Cost cost_of(const CombineParams& p) {
  return {.bytes = bytes_of({p.slot_rows, p.shared_rows, p.y})};
}

Cost cost_of(const TapParams& p) {
  return {.bytes = bytes_of({p.streams, p.out})};
}

Cost cost_of(const LogitsParams& p) {
  return {.bytes = bytes_of({p.streams, p.head, p.logits}),
          .operations = product(p.head, p.streams.dim(0))};
}

Cost cost_of(const SampleParams& p) {
  return {.bytes = bytes_of({p.logits, p.bias, p.mask})};
}

Cost cost_of(const CommitParams& p) {
  return {.bytes = static_cast<double>(p.entries.size() * sizeof(CommitEntry))};
}

}  // namespace deepinfer::ops
