// Operations that read other rows of a sequence: the bits of a position depend on the sequence
// alone, however it is cut in steps, ordered in a step, rolled back and repeated, and whatever
// else is in the step.
#include <algorithm>
#include <map>

#include "tensor/quantize.h"
#include "tests/ops/step_caches.h"
#include "tests/ops/suite.h"

namespace deepinfer::ops {
namespace {

using Bytes = std::vector<std::byte>;

constexpr uint64_t kSeed = 20261202;
constexpr int64_t kWidth = 48;  // d
constexpr int64_t kRank = 32;
constexpr int64_t kHeads = 3;
constexpr int64_t kHeadDim = 32;
constexpr int64_t kIndexHeads = 2;
constexpr int64_t kWindow = 32;
constexpr int64_t kRing = kWindow + 16;
constexpr int64_t kSelected = 12;
constexpr int32_t kTokens = 300;

/// What a position's operations gave, by (slot, position).
using Results = std::map<std::pair<int32_t, int64_t>, Bytes>;

/// Attention of one layer that owns its compressed entries, step by step.
class Sequence {
 public:
  Sequence(const BackendCase& backend_case, int threads, int32_t ratio)
      : pool_(threads),
        backend_(backend_case.make(pool_)),
        weights_(*backend_),
        caches_(*backend_, weights_, {.head_dim = kHeadDim, .ring_rows = kRing, .ratio = ratio}) {
    testing::Random random(kSeed);
    const auto weight = [&](const Shape& shape) {
      return weights_.put(random.tensor(DType::kBF16, shape, 0.3F));
    };
    compress_ = {.x = {},
                 .rows = {},
                 .slots = caches_.slots,
                 .wkv = weight({kHeadDim, kWidth}),
                 .wgate = ratio == 2 ? weight({kHeadDim, kWidth}) : TensorView(),
                 .norm = weight({kHeadDim}),
                 .index_wk = weight({caches_.sizes.index_dim, kHeadDim}),
                 .index_norm = weight({caches_.sizes.index_dim}),
                 .rope = {weights_.put_f32(rope_inv_freq(16, 160000), {8})},
                 .eps = 1e-20F,
                 .pages = caches_.pages,
                 .pending = caches_.pending,
                 .trace_latent = {}};
    wq_b_ = weights_.place(weight({kIndexHeads * caches_.sizes.index_dim, kRank}));
    weights_proj_ = weight({kIndexHeads, kWidth});
    sink_ = weights_.put(random.tensor(DType::kF32, {kHeads}));
  }

  /// Runs rows in the order of the plan; rows from batch row `running` on stop below this layer's
  /// attention, and those from `querying` on have keys but no queries. Stale rows stand for drafts
  /// that will be rejected: other data, results dropped.
  void step(std::span<const PlanRow> plan, bool stale = false, int64_t running = -1,
            int64_t window_floor = 0, int64_t querying = -1) {
    testing::Operands operands(*backend_);
    const RowBatch rows = caches_.resolve(plan);
    const int64_t num_keys = running < 0 ? static_cast<int64_t>(plan.size()) : running;
    const int64_t n = querying < 0 ? num_keys : querying;
    position_ = operands.ints(rows.position);
    const std::vector<int64_t> floors(static_cast<size_t>(n), window_floor);
    const auto data = [&](uint64_t salt, int64_t count, int64_t size) {
      std::vector<float> all;
      for (size_t b = 0; b < static_cast<size_t>(count); ++b) {
        const auto id =
            static_cast<uint64_t>(position_[b] * 4 + plan[b].slot * 2 + (stale ? 1 : 0));
        const std::vector<float> row = testing::Random(kSeed + salt * 1'000'003 + id).normals(size);
        all.insert(all.end(), row.begin(), row.end());
      }
      return all;
    };
    const auto act = [&](uint64_t salt, int64_t count, int64_t size) {
      return operands.put_act(data(salt, count, size), {count, size});
    };

    compress_.x = act(1, static_cast<int64_t>(plan.size()), kWidth);
    compress_.rows = rows;
    backend_->compress(compress_);

    const CandidateBlocks blocks{.blocks = operands.zeros(DType::kI32, {n, 5}),
                                 .count = operands.zeros(DType::kI32, {n}),
                                 .block_size = 4};
    IndexSelectParams select{.x = compress_.x.slice(0, n),
                             .r = act(2, n, kRank),
                             .rows = rows,
                             .slots = caches_.slots,
                             .wq_b = wq_b_,
                             .weights_proj = weights_proj_,
                             .rope = compress_.rope,
                             .pages = caches_.pages,
                             .restrict_to = {},
                             .publish = blocks,
                             .selected = operands.zeros(DType::kI32, {n, kSelected}),
                             .num_selected = operands.zeros(DType::kI32, {n}),
                             .trace_query = {},
                             .trace_scores = {}};
    backend_->index_select(select);
    IndexSelectParams restricted = select;
    restricted.publish = {};
    restricted.restrict_to = blocks;
    restricted.selected = operands.zeros(DType::kI32, {n, kSelected});
    restricted.num_selected = operands.zeros(DType::kI32, {n});
    backend_->index_select(restricted);

    std::vector<float> keys = data(3, num_keys, kHeadDim);
    Tensor codes(DType::kE4M3, {num_keys, kHeadDim});
    Tensor scales(DType::kE8M0, {num_keys, 1});
    quantize_fp8(keys, codes.as<uint8_t>(), scales.as<uint8_t>());
    const SparseAttentionParams attention{
        .q = act(4, n, kHeads * kHeadDim).reshape({n, kHeads, kHeadDim}),
        .rows = rows,
        .slots = caches_.slots,
        .window = kWindow,
        .rings = caches_.rings,
        .window_codes = operands.put(codes),
        .window_scales = operands.put(scales),
        .window_floor =
            window_floor > 0 ? operands.put(testing::to_tensor(floors, {n})) : TensorView(),
        .pages = caches_.pages,
        .selected = select.selected,
        .num_selected = select.num_selected,
        .sink = sink_,
        .rope = compress_.rope,
        .out = operands.zeros_act({n, kHeads, kHeadDim}),
        .trace_core = {}};
    backend_->sparse_attention(attention);
    backend_->window_store({.rows = rows,
                            .window_codes = attention.window_codes,
                            .window_scales = attention.window_scales,
                            .rings = caches_.rings});
    if (stale) return;
    for (const TensorView& result :
         {attention.out, select.selected, select.num_selected, blocks.blocks, blocks.count,
          restricted.selected, restricted.num_selected}) {
      record(plan, operands.get(result));
    }
    last_rows_ = rows;
  }

  /// Commits each slot of the last step up to its last row.
  void commit(std::span<const PlanRow> plan) {
    std::map<int32_t, size_t> last;
    for (size_t b = 0; b < plan.size(); ++b) {
      const auto [at, added] = last.try_emplace(plan[b].slot, b);
      if (!added && plan[b].offset > plan[at->second].offset) at->second = b;
    }
    for (const auto& [slot, b] : last) caches_.commit(last_rows_, slot, static_cast<int32_t>(b));
  }
  void run(std::span<const PlanRow> plan) {
    step(plan);
    commit(plan);
  }

  /// Everything that later steps read: pages, pending pairs, the rings' rows and tags.
  std::vector<Bytes> state() {
    testing::Operands operands(*backend_);
    std::vector<Bytes> all;
    for (const TensorView& view :
         {caches_.pages.entry_codes, caches_.pages.entry_scales, caches_.pages.key_codes,
          caches_.pages.key_scales, caches_.pending, caches_.all_rings.codes,
          caches_.all_rings.scales, caches_.all_rings.tags, caches_.slots.committed}) {
      if (view.empty()) continue;
      const Tensor host = operands.get(view);
      const auto* bytes = static_cast<const std::byte*>(host.view().data());
      all.emplace_back(bytes, bytes + host.view().num_bytes());
    }
    return all;
  }

  /// The slot's sequence goes on at another position.
  void restart(int32_t slot, int64_t position) { caches_.set_committed(slot, position); }

  /// Forgets the rings and the waiting pairs, as a prefix hit finds them.
  void forget_rings() {
    testing::Operands operands(*backend_);
    const Shape shape = caches_.all_rings.tags.shape();
    const std::vector<int64_t> empty(static_cast<size_t>(shape.num_elements()), -1);
    backend_->copy(testing::to_tensor(empty, shape), caches_.all_rings.tags);
    if (!caches_.pending.empty()) {
      backend_->copy(Tensor(DType::kF32, caches_.pending.shape()), caches_.pending);
    }
    backend_->synchronize();
  }

  Results results;

 private:
  void record(std::span<const PlanRow> plan, const Tensor& host) {
    const int64_t rows = host.view().dim(0);
    const auto bytes = static_cast<size_t>(host.view().num_bytes() / std::max(rows, int64_t{1}));
    for (size_t b = 0; b < static_cast<size_t>(rows); ++b) {
      const auto* row = static_cast<const std::byte*>(host.view().data()) + b * bytes;
      Bytes& result = results[{plan[b].slot, position_[b]}];
      result.insert(result.end(), row, row + bytes);
    }
  }

  ThreadPool pool_;
  std::unique_ptr<Backend> backend_;
  testing::Operands weights_;
  StepCaches caches_;
  CompressParams compress_;
  QuantView wq_b_;
  TensorView weights_proj_;
  TensorView sink_;
  RowBatch last_rows_;
  std::vector<int64_t> position_;
};

class Sequences : public ::testing::TestWithParam<BackendCase> {
 protected:
  static constexpr int32_t kOther = 150;  // tokens of the neighbour

  /// Both sequences one token at a time, one after the other.
  static void run_one_by_one(Sequence& sequence, int32_t other) {
    for (int32_t i = 0; i < kTokens; ++i) sequence.run(plan_rows(0, 0, 1));
    for (int32_t i = 0; i < other; ++i) sequence.run(plan_rows(1, 0, 1));
  }

  static void expect_equal(const Results& got, const Results& want) {
    for (const auto& [place, bytes] : got) {
      ASSERT_TRUE(want.contains(place));
      ASSERT_TRUE(bytes == want.at(place))
          << "slot " << place.first << ", position " << place.second;
    }
  }
};

TEST_P(Sequences, BitsDoNotDependOnStepsOrderNeighboursOrThreads) {
  SCOPED_TRACE(::testing::Message() << "seed " << kSeed);
  for (const int32_t ratio : {1, 2}) {
    Sequence want(GetParam(), 1, ratio);
    run_one_by_one(want, kOther);
    const std::vector<Bytes> want_state = want.state();
    for (const auto& [chunk, threads] : std::vector<std::pair<int32_t, int>>{
             {1, 2}, {7, 5}, {64, 1}, {127, 2}, {128, 5}, {129, 2}, {kTokens, 5}}) {
      SCOPED_TRACE(::testing::Message() << "ratio " << ratio << ", chunks of " << chunk);
      Sequence got(GetParam(), threads, ratio);
      testing::Random random(kSeed + static_cast<uint64_t>(chunk));
      int32_t done = 0;
      int32_t other = 0;
      while (done < kTokens || other < kOther) {
        const int32_t count = std::min(chunk, kTokens - done);
        const auto neighbours =
            std::min(static_cast<int32_t>(random.below(chunk + 20)), kOther - other);
        std::vector<PlanRow> plan = plan_rows(0, 0, count);
        const std::vector<PlanRow> more = plan_rows(1, 0, neighbours);
        plan.insert(plan.end(), more.begin(), more.end());
        for (size_t i = plan.size(); i > 1; --i) {
          std::swap(plan[i - 1], plan[static_cast<size_t>(random.below(static_cast<int64_t>(i)))]);
        }
        got.run(plan);  // may be a step of no rows
        done += count;
        other += neighbours;
      }
      expect_equal(got.results, want.results);
      EXPECT_TRUE(got.state() == want_state);
    }
  }
}

TEST_P(Sequences, RejectedRowsLeaveNoTrace) {
  for (const int32_t ratio : {1, 2}) {
    Sequence want(GetParam(), 1, ratio);
    run_one_by_one(want, 0);
    for (const int32_t start : {3, 100, 201}) {
      SCOPED_TRACE(::testing::Message() << "ratio " << ratio << ", from " << start);
      Sequence got(GetParam(), 2, ratio);
      got.run(plan_rows(0, 0, start));
      for (int32_t t = start; t < kTokens;) {
        // Two verifications in flight: sixteen rows, of which the first one or more are committed.
        const int32_t accepted = std::min(1 + t % 5, kTokens - t);
        const std::vector<PlanRow> committed = plan_rows(0, 0, accepted);
        got.step(committed);
        got.step(plan_rows(0, accepted, 16 - accepted), true);
        got.commit(committed);
        t += accepted;
        if (t % 2 == 0) got.step(plan_rows(0, 0, 16), true);
      }
      expect_equal(got.results, want.results);
    }
  }
}

TEST_P(Sequences, ReplayRebuildsRingsAndWritesNoPage) {
  for (const int32_t ratio : {1, 2}) {
    SCOPED_TRACE(::testing::Message() << "ratio " << ratio);
    Sequence got(GetParam(), 2, ratio);
    constexpr int32_t kHit = 200;
    got.run(plan_rows(0, 0, kHit));
    const std::vector<Bytes> pages = got.state();
    got.forget_rings();
    // More rows than the ring has; the first of them lack their own windows, and no page shows it.
    constexpr int32_t kReplayed = kRing + 20;
    got.restart(0, kHit - kReplayed);
    got.run(plan_rows(0, 0, kReplayed, RowRole::kReplay));
    EXPECT_TRUE(got.state() == pages);
    got.results.clear();
    got.run(plan_rows(0, 0, kTokens - kHit));
    Sequence want(GetParam(), 1, ratio);
    run_one_by_one(want, 0);
    expect_equal(got.results, want.results);
  }
}

TEST_P(Sequences, RowsThatDoNotRunAreNotSeen) {
  for (const int32_t ratio : {1, 2}) {
    SCOPED_TRACE(::testing::Message() << "ratio " << ratio);
    constexpr int32_t kRows = 60;
    constexpr int32_t kRunning = 20;
    // Deepest first: the last rows of the prompt come first.
    std::vector<PlanRow> plan = plan_rows(0, 0, kRows);
    std::ranges::reverse(plan);
    Sequence some(GetParam(), 2, ratio);
    some.step(plan, false, kRunning);
    Sequence all(GetParam(), 2, ratio);
    all.step(plan, false, -1, kRows - kRunning);
    ASSERT_EQ(some.results.size(), static_cast<size_t>(kRunning));
    expect_equal(some.results, all.results);
    // The ring holds what ran: the next window has no older keys.
    some.commit(plan);
    all.commit(plan);
    some.run(plan_rows(0, 0, 1));
    const std::vector<PlanRow> next = plan_rows(0, 0, 1);
    all.step(next, false, -1, kRows - kRunning);
    expect_equal(some.results, all.results);
  }
}

TEST_P(Sequences, RowsWithoutQueriesAreSeen) {
  for (const int32_t ratio : {1, 2}) {
    constexpr int32_t kRows = 60;
    std::vector<PlanRow> plan = plan_rows(0, 0, kRows);
    std::ranges::reverse(plan);
    Sequence all(GetParam(), 2, ratio);
    all.run(plan);
    for (const int32_t querying : {0, 1, 20}) {
      SCOPED_TRACE(::testing::Message() << "ratio " << ratio << ", queries " << querying);
      Sequence some(GetParam(), 2, ratio);
      some.step(plan, false, -1, 0, querying);
      some.commit(plan);
      ASSERT_EQ(some.results.size(), static_cast<size_t>(querying));
      expect_equal(some.results, all.results);
      EXPECT_TRUE(some.state() == all.state());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, Sequences, ::testing::ValuesIn(suite().backends), case_name);

}  // namespace
}  // namespace deepinfer::ops
