#include "ops/index_select.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "cpu/best_places.h"
#include "cpu/linear.h"
#include "cpu/operations.h"
#include "cpu/rows.h"
#include "ops/addresses.h"
#include "tensor/quantize.h"

namespace deepinfer::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
/// Rows whose scores are in memory at the same time, and how many of each: 1 MiB.
constexpr int64_t kPassRows = 64;
constexpr int64_t kTileScores = 4096;
/// Scores of one task: what a thread computes between two looks at the queue.
constexpr int64_t kTaskScores = 256;

/// The entries that compete in a row's selection, as a list: all visible ones, or those of its
/// candidate blocks. Entry numbers ascend along the list.
struct Competitors {
  const int32_t* blocks;  // null: entry i of the list is entry i
  int64_t block_size;
  int64_t count;

  int64_t entry(int64_t i) const {
    return blocks == nullptr ? i : blocks[i / block_size] * block_size + i % block_size;
  }
};

Competitors competitors_of(const ops::IndexSelectParams& p, int64_t b) {
  const int64_t visible = (p.rows.position.as<const int64_t>()[b] + 1) / p.pages.ratio;
  if (p.restrict_to.blocks.empty()) return {nullptr, 1, visible};
  const auto* blocks = p.restrict_to.blocks.row<const int32_t>(b);
  const int64_t size = p.restrict_to.block_size;
  int64_t count = p.restrict_to.count.as<const int32_t>()[b];
  while (count > 0 && blocks[count - 1] * size >= visible) --count;
  if (count == 0) return {blocks, size, 0};
  // The last block may reach beyond the visible entries.
  const int64_t last = std::min(size, visible - blocks[count - 1] * size);
  return {blocks, size, (count - 1) * size + last};
}

/// The two levels of one row's choice, fed with scores by ascending entry.
struct Choice {
  BestPlaces entries;
  BestPlaces blocks;               // of the candidate source only
  float block_score = -kInfinity;  // of the block that has begun

  /// Scores of list places [begin, end). `places` has room for as many.
  void offer(const Context& context, const Competitors& list, const float* scores, int64_t begin,
             int64_t end, int32_t* places) {
    int64_t i = begin;
    while (i < end) {
      if (!entries.is_full() || end - i < kIndexLanes) {
        entries.offer(scores[i - begin], list.entry(i));
        ++i;
        continue;
      }
      // A few hundred at a time, because the bound rises.
      const int64_t n = std::min<int64_t>(end - i, 512) / kIndexLanes * kIndexLanes;
      const int64_t found =
          context.kernels.rows.find_above(scores + (i - begin), n, entries.bound(), places);
      for (int64_t k = 0; k < found; ++k) {
        entries.offer(scores[i - begin + places[k]], list.entry(i + places[k]));
      }
      i += n;
    }
  }

  /// The same scores for the blocks; `visible` is the number of all.
  void offer_blocks(const float* scores, int64_t begin, int64_t end, int64_t size,
                    int64_t visible) {
    for (int64_t e = begin; e < end; ++e) {
      block_score = std::max(block_score, scores[e - begin]);
      const bool is_newest = e + 1 == visible;
      if (!is_newest && (e + 1) % size != 0) continue;
      // The block of the newest visible entry comes before all others.
      blocks.offer(is_newest ? kInfinity : block_score, e / size);
      block_score = -kInfinity;
    }
  }
};

/// Rows of a pass that score the same entries: the neighbours of one slot, or a row of its own.
struct Group {
  int64_t first;  // row of the pass
  int64_t rows;
  int64_t count;  // competitors of the row that has most
};

/// The rows of one pass and what they need.
struct Pass {
  int64_t first;  // batch row of row 0
  int64_t rows;
  Competitors* lists;
  IndexQuery* queries;
  Choice* choices;
  Group* groups;
  int64_t num_groups;
  float* scores;  // [rows, kTileScores]
};

class IndexSelect {
 public:
  IndexSelect(const Context& context, const ops::IndexSelectParams& p)
      : context_(context),
        p_(p),
        shape_{.heads = p.weights_proj.dim(0), .dim = p.wq_b.rows() / p.weights_proj.dim(0)} {}

  void run() {
    const int64_t rows = p_.x.dim(0);
    if (rows == 0) return;
    if (select_all(rows)) return;
    project(rows);
    for (int64_t first = 0; first < rows; first += kPassRows) {
      const Arena::Mark mark = shared().mark();
      run_pass(make_pass(first, std::min(kPassRows, rows - first)));
      shared().release(mark);
    }
    if (!p_.trace_scores.empty()) trace_scores(rows);
  }

 private:
  Arena& shared() const { return context_.workspace.shared(); }

  /// Whether every row keeps all that it can see: then no score matters, and none is computed.
  bool select_all(int64_t rows) const {
    if (!p_.trace_query.empty() || !p_.trace_scores.empty()) return false;
    const bool publishes = !p_.publish.blocks.empty();
    const auto blocks_of = [&](int64_t visible) {
      return (visible + p_.publish.block_size - 1) / p_.publish.block_size;
    };
    for (int64_t b = 0; b < rows; ++b) {
      const int64_t count = competitors_of(p_, b).count;
      if (count > p_.selected.dim(1)) return false;
      if (publishes && blocks_of(count) > p_.publish.blocks.dim(1)) return false;
    }
    for (int64_t b = 0; b < rows; ++b) {
      const Competitors list = competitors_of(p_, b);
      auto* selected = p_.selected.row<int32_t>(b);
      for (int64_t i = 0; i < list.count; ++i) selected[i] = static_cast<int32_t>(list.entry(i));
      p_.num_selected.as<int32_t>()[b] = static_cast<int32_t>(list.count);
      if (!publishes) continue;
      auto* blocks = p_.publish.blocks.row<int32_t>(b);
      const int64_t count = blocks_of(list.count);
      for (int64_t i = 0; i < count; ++i) blocks[i] = static_cast<int32_t>(i);
      p_.publish.count.as<int32_t>()[b] = static_cast<int32_t>(count);
    }
    return true;
  }

  void project(int64_t rows) {
    const int64_t size = p_.wq_b.rows();
    queries_ = TensorView(shared().take<BFloat16>(rows * size), DType::kBF16, {rows, size});
    weights_ = TensorView(shared().take<BFloat16>(rows * shape_.heads), DType::kBF16,
                          {rows, shape_.heads});
    const Product products[] = {
        {.weight = p_.wq_b, .x = p_.r, .y = queries_, .rounding = InputRounding::kFp8},
        {.weight = {.weight = p_.weights_proj, .scale = {}}, .x = p_.x, .y = weights_}};
    linear(context_, products);
  }

  Pass make_pass(int64_t first, int64_t rows) const {
    const int64_t blocks = p_.publish.blocks.empty() ? 0 : p_.publish.blocks.dim(1);
    Pass pass{.first = first,
              .rows = rows,
              .lists = shared().take<Competitors>(rows),
              .queries = shared().take<IndexQuery>(rows),
              .choices = shared().take<Choice>(rows),
              .groups = shared().take<Group>(rows),
              .num_groups = 0,
              .scores = shared().take<float>(rows * kTileScores)};
    const auto offers = [&](int64_t capacity) {
      return BestPlaces(shared().take<BestPlaces::Offer>(BestPlaces::memory(capacity)), capacity);
    };
    const auto* slot = p_.rows.slot.as<const int32_t>();
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t words = shape_.heads * shape_.dim / 4;
      new (&pass.lists[i]) Competitors(competitors_of(p_, first + i));
      new (&pass.queries[i]) IndexQuery{.words = shared().take<int32_t>(words),
                                        .offset = shared().take<int32_t>(words / 8),
                                        .scale = shared().take<float>(words / 8),
                                        .weights = shared().take<float>(shape_.heads)};
      new (&pass.choices[i]) Choice{offers(p_.selected.dim(1)), offers(blocks)};
      const int64_t count = pass.lists[i].count;
      const bool joins =
          i > 0 && pass.lists[i].blocks == nullptr && slot[first + i] == slot[first + i - 1];
      if (joins) {
        Group& group = pass.groups[pass.num_groups - 1];
        ++group.rows;
        group.count = std::max(group.count, count);
      } else {
        new (&pass.groups[pass.num_groups++]) Group{i, 1, count};
      }
    }
    return pass;
  }

  /// Rotates the query of a batch row in place.
  void rotate_query(int64_t b) const {
    const int64_t pairs = p_.rope.inv_freq.dim(0);
    const Rotation rotation(context_.fresh_arena(), pairs);
    rotation.fill(context_, p_.rows.position.as<const int64_t>()[b], p_.rope, 1);
    BFloat16* query = queries_.row<BFloat16>(b);
    for (int64_t h = 0; h < shape_.heads; ++h) {
      context_.kernels.rows.rotate(query + (h + 1) * shape_.dim - 2 * pairs, rotation.cosine,
                                   rotation.sine, pairs);
    }
  }

  /// Quantises and packs the rotated query of a row of a pass.
  void pack_query(const Pass& pass, int64_t i) const {
    const int64_t b = pass.first + i;
    const int64_t size = shape_.heads * shape_.dim;
    Arena& arena = context_.fresh_arena();
    auto* codes = arena.take<uint8_t>(size / 2);
    auto* scales = arena.take<uint8_t>(size / 32);
    // Heads are whole blocks of 32 channels.
    context_.kernels.rows.quantize_fp4_index(queries_.row<const BFloat16>(b), size, codes, scales);
    context_.kernels.rows.pack_query(codes, scales, shape_, pass.queries[i]);
    const float factor = 1.0F / std::sqrt(static_cast<float>(shape_.heads));
    for (int64_t h = 0; h < shape_.heads; ++h) {
      pass.queries[i].weights[h] = to_float(weights_.row<const BFloat16>(b)[h]) * factor;
    }
    if (p_.trace_query.empty()) return;
    dequantize_fp4_index(codes, scales,
                         std::span(p_.trace_query.row<float>(b), static_cast<size_t>(size)));
  }

  /// Scores up to sixteen entries of a slot, given by number, for several queries.
  template <typename EntryOf, typename Store>
  void score(Arena& arena, int64_t slot, int count, const EntryOf& entry_of,
             const IndexQuery* query, int64_t queries, const Store& store) const {
    const uint8_t* codes[kIndexLanes];
    const uint8_t* scales[kIndexLanes];
    for (int k = 0; k < count; ++k) {
      const ops::StoredEntry entry = ops::entry_at(p_.pages, p_.slots, slot, entry_of(k));
      codes[k] = entry.key_codes;
      scales[k] = entry.key_scales;
    }
    const IndexKeys keys{.words = arena.take<int32_t>(shape_.dim * 4),
                         .scale = arena.take<float>(shape_.dim / 2)};
    context_.kernels.rows.pack_keys(codes, scales, count, shape_.dim, keys);
    for (int64_t i = 0; i < queries; ++i) {
      float scores[kIndexLanes];
      context_.kernels.rows.score_keys(query[i], keys, shape_, scores);
      store(i, scores);
    }
  }

  /// Scores of list places [begin, end) for the rows of a group, to their columns of the tile.
  void score_range(const Pass& pass, const Group& group, int64_t tile, int64_t begin,
                   int64_t end) const {
    const Competitors& list = pass.lists[group.first];
    const int64_t slot = p_.rows.slot.as<const int32_t>()[pass.first + group.first];
    for (int64_t i = begin; i < end; i += kIndexLanes) {
      const int count = static_cast<int>(std::min(kIndexLanes, end - i));
      score(
          context_.fresh_arena(), slot, count, [&](int k) { return list.entry(i + k); },
          pass.queries + group.first, group.rows,
          [&](int64_t row, const float* scores) {
            float* out = pass.scores + (group.first + row) * kTileScores + (i - tile);
            std::copy_n(scores, count, out);
          });
    }
  }

  void run_pass(const Pass& pass) const {
    context_.parallel_for(pass.rows, 2, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        rotate_query(pass.first + i);
        pack_query(pass, i);
      }
    });
    int64_t longest = 0;
    for (int64_t g = 0; g < pass.num_groups; ++g) {
      longest = std::max(longest, pass.groups[g].count);
    }
    for (int64_t tile = 0; tile < longest; tile += kTileScores) run_tile(pass, longest, tile);
    for (int64_t i = 0; i < pass.rows; ++i) store_choice(pass, i);
  }

  void run_tile(const Pass& pass, int64_t longest, int64_t tile) const {
    const int64_t width = std::min(kTileScores, longest - tile);
    const int64_t parts = (width + kTaskScores - 1) / kTaskScores;
    context_.parallel_for(pass.num_groups * parts, 1, [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task) {
        const Group& group = pass.groups[task / parts];
        const int64_t from = tile + task % parts * kTaskScores;
        const int64_t to = std::min({from + kTaskScores, tile + width, group.count});
        if (from < to) score_range(pass, group, tile, from, to);
      }
    });
    context_.parallel_for(pass.rows, 4, [&](int64_t begin, int64_t end) {
      auto* places = context_.fresh_arena().take<int32_t>(kTileScores);
      for (int64_t i = begin; i < end; ++i) {
        const Competitors& list = pass.lists[i];
        const int64_t to = std::min(tile + width, list.count);
        if (tile >= to) continue;
        const float* scores = pass.scores + i * kTileScores;
        pass.choices[i].offer(context_, list, scores, tile, to, places);
        if (!p_.publish.blocks.empty()) {
          pass.choices[i].offer_blocks(scores, tile, to, p_.publish.block_size, list.count);
        }
      }
    });
  }

  void store_choice(const Pass& pass, int64_t i) const {
    const int64_t b = pass.first + i;
    const auto store = [&](BestPlaces& best, const TensorView& list, const TensorView& count) {
      count.as<int32_t>()[b] = static_cast<int32_t>(best.places(list.row<int32_t>(b)));
    };
    store(pass.choices[i].entries, p_.selected, p_.num_selected);
    if (!p_.publish.blocks.empty()) {
      store(pass.choices[i].blocks, p_.publish.blocks, p_.publish.count);
    }
  }

  /// Scores of every entry that the row's slot has at the end of the step, visible or not.
  void trace_scores(int64_t rows) const {
    for (int64_t b = 0; b < rows; ++b) {
      const Arena::Mark mark = shared().mark();
      auto* out = p_.trace_scores.row<float>(b);
      std::fill_n(out, p_.trace_scores.dim(1), 0.0F);
      const int64_t slot = p_.rows.slot.as<const int32_t>()[b];
      const int64_t end =
          p_.rows.span_first.as<const int64_t>()[b] + p_.rows.span_size.as<const int32_t>()[b];
      const int64_t count = std::min(end / p_.pages.ratio, p_.trace_scores.dim(1));
      const Pass pass = make_pass(b, 1);
      pack_query(pass, 0);
      for (int64_t e = 0; e < count; ++e) {
        if (!ops::find_entry(p_.pages, p_.slots, slot, e)) continue;
        score(
            context_.fresh_arena(), slot, 1, [e](int) { return e; }, pass.queries, 1,
            [&](int64_t, const float* scores) { out[e] = scores[0]; });
      }
      shared().release(mark);
    }
  }

  const Context& context_;
  const ops::IndexSelectParams& p_;
  IndexShape shape_;
  TensorView queries_;  // [B, Hi·Di] bf16
  TensorView weights_;  // [B, Hi] bf16
};

}  // namespace

void index_select(const Context& context, const ops::IndexSelectParams& p) {
  IndexSelect(context, p).run();
}

}  // namespace deepinfer::cpu
