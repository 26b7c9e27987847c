// Operations at random shapes: against the reference in engine numerics, and bit for bit between
// levels, thread counts and rows alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>

#include "cpu/backend.h"
#include "cpu/dispatch.h"
#include "ops/rope_table.h"
#include "tests/ops/step_caches.h"
#include "tests/support/compare.h"
#include "tests/support/operands.h"

namespace deepinfer::ops {
namespace {

using testing::Operands;
using testing::Random;

/// A random case: everything follows from the seed.
struct Scenario {
  uint64_t seed;
  int64_t heads;
  int64_t head_dim;
  int64_t index_heads;
  int64_t index_dim;
  int64_t pairs;
  int64_t window;
  int32_t ratio;
  int64_t topk;
  int64_t context;  // tokens of slot 0 before the step
  int64_t rows;     // of slot 0; slot 1 has one row
  bool publishes;
};

Scenario scenario_of(uint64_t seed) {
  Random random(seed);
  const auto pick = [&](std::initializer_list<int64_t> values) {
    return *(values.begin() + random.below(static_cast<int64_t>(values.size())));
  };
  return {.seed = seed,
          .heads = pick({1, 3, 4, 7, 8}),
          .head_dim = pick({32, 64, 96, 160, 512}),
          .index_heads = pick({1, 2, 5, 8}),
          .index_dim = pick({32, 64, 128}),
          .pairs = pick({1, 8, 16}),
          .window = pick({1, 5, 63, 64, 128}),
          .ratio = static_cast<int32_t>(pick({1, 2})),
          .topk = pick({1, 16, 65, 128}),
          .context = pick({0, 1, 127, 128, 129, 301}),
          .rows = pick({1, 2, 9, 33}),
          .publishes = random.below(2) == 0};
}

/// The step on one backend. Results are concatenated per row, so that rows can be compared.
class Step {
 public:
  Step(Backend& backend, const Scenario& scenario)
      : s_(scenario),
        operands_(backend),
        backend_(backend),
        caches_(backend, operands_,
                {.slots = 2,
                 .page_tokens = 16,
                 .pages_per_slot = 32,
                 .head_dim = scenario.head_dim,
                 .index_dim = scenario.index_dim,
                 .ring_rows = scenario.window + 16,
                 .ratio = scenario.ratio}) {
    Random random(s_.seed);
    const int64_t ring = std::min(s_.context, s_.window + 16);
    caches_.fill_ring(0, random.normals(ring * s_.head_dim));
    const int64_t entries = s_.context / s_.ratio;
    caches_.fill_entries(0, random.normals(entries * s_.head_dim));
    caches_.fill_keys(0, random.normals(entries * s_.index_dim));
    caches_.set_committed(0, s_.context);
    std::vector<PlanRow> plan = plan_rows(0, 0, static_cast<int32_t>(s_.rows));
    plan.push_back({.slot = 1, .offset = 0, .token = 0, .role = RowRole::kPrefill});
    rows_ = caches_.resolve(plan);
    num_rows_ = s_.rows + 1;
    x_ = operands_.put_act(random.normals(num_rows_ * kWidth), {num_rows_, kWidth});
    rope_ = {operands_.put_f32(rope_inv_freq(2 * s_.pairs, 10000), {s_.pairs})};
  }

  void compress() {
    Random random(s_.seed + 1);
    const CompressParams p{
        .x = x_,
        .rows = rows_,
        .slots = caches_.slots,
        .wkv = operands_.put(random.tensor(DType::kBF16, {s_.head_dim, kWidth}, 0.1F)),
        .wgate = s_.ratio == 2
                     ? operands_.put(random.tensor(DType::kBF16, {s_.head_dim, kWidth}, 0.1F))
                     : TensorView(),
        .norm = operands_.put(random.tensor(DType::kBF16, {s_.head_dim})),
        .index_wk = operands_.put(random.tensor(DType::kBF16, {s_.index_dim, s_.head_dim}, 0.1F)),
        .index_norm = operands_.put(random.tensor(DType::kBF16, {s_.index_dim})),
        .rope = rope_,
        .eps = 1e-20F,
        .pages = caches_.pages,
        .pending = caches_.pending,
        .trace_latent = operands_.zeros(DType::kF32, {num_rows_, s_.head_dim})};
    backend_.compress(p);
    latents = operands_.floats(p.trace_latent);
    const int64_t end = (s_.context + s_.rows) / s_.ratio;
    entries = caches_.entries(0, end);
    keys = caches_.keys(0, end);
  }

  void select() {
    Random random(s_.seed + 2);
    constexpr int64_t kRank = 64;
    const testing::Weight wq_b = testing::random_fp8(random, s_.index_heads * s_.index_dim, kRank);
    const int64_t max_entries = (s_.context + s_.rows) / s_.ratio;
    const CandidateBlocks blocks{.blocks = operands_.zeros(DType::kI32, {num_rows_, 7}),
                                 .count = operands_.zeros(DType::kI32, {num_rows_}),
                                 .block_size = 8};
    const auto result = [&](const Shape& shape) { return operands_.zeros(DType::kI32, shape); };
    IndexSelectParams p{
        .x = x_,
        .r = operands_.put_act(random.normals(num_rows_ * kRank), {num_rows_, kRank}),
        .rows = rows_,
        .slots = caches_.slots,
        .wq_b = {operands_.put(wq_b.values), operands_.put(wq_b.scales), wq_b.scale_rows},
        .weights_proj = operands_.put(random.tensor(DType::kBF16, {s_.index_heads, kWidth})),
        .rope = rope_,
        .pages = caches_.pages,
        .restrict_to = {},
        .publish = s_.publishes ? blocks : CandidateBlocks{},
        .selected = result({num_rows_, s_.topk}),
        .num_selected = result({num_rows_}),
        .trace_query = operands_.zeros(DType::kF32, {num_rows_, s_.index_heads, s_.index_dim}),
        .trace_scores =
            operands_.zeros(DType::kF32, {num_rows_, std::max(max_entries, int64_t{1})})};
    const auto keep = [&] {
      for (const auto& view : {p.selected, p.num_selected, blocks.blocks, blocks.count}) {
        const std::vector<int64_t> values = operands_.ints(view);
        chosen.insert(chosen.end(), values.begin(), values.end());
      }
    };
    backend_.index_select(p);
    scores = operands_.floats(p.trace_scores);
    keep();
    // The same choice without traces, which may take a shorter way.
    p.trace_query = {};
    p.trace_scores = {};
    p.selected = result({num_rows_, s_.topk});
    p.num_selected = result({num_rows_});
    backend_.index_select(p);
    keep();
    if (!s_.publishes) return;
    p.publish = {};
    p.restrict_to = blocks;
    p.selected = result({num_rows_, s_.topk});
    p.num_selected = result({num_rows_});
    backend_.index_select(p);
    keep();
  }

  void attend() {
    Random random(s_.seed + 3);
    std::vector<int32_t> selected(static_cast<size_t>(num_rows_ * s_.topk));
    std::vector<int32_t> counts(static_cast<size_t>(num_rows_));
    const int64_t visible = s_.context / s_.ratio;
    for (int64_t b = 0; b < s_.rows; ++b) {
      std::vector<int32_t> all(static_cast<size_t>(visible));
      std::iota(all.begin(), all.end(), 0);
      const int64_t count = std::min(visible, random.below(s_.topk + 1));
      for (int64_t i = 0; i < count; ++i) {
        std::swap(all[static_cast<size_t>(i)],
                  all[static_cast<size_t>(i + random.below(visible - i))]);
      }
      std::sort(all.begin(), all.begin() + count);
      std::copy_n(all.begin(), count, selected.begin() + b * s_.topk);
      counts[static_cast<size_t>(b)] = static_cast<int32_t>(count);
    }
    // Keys of the step as the window cache would hold them.
    StepCaches own(backend_, operands_,
                   {.head_dim = s_.head_dim, .ring_rows = std::max(num_rows_, int64_t{48})});
    own.fill_ring(0, random.normals(num_rows_ * s_.head_dim));
    const Shape shape = {num_rows_, s_.heads, s_.head_dim};
    const SparseAttentionParams p{
        .q = operands_.put_act(random.normals(shape.num_elements(), 2), shape),
        .rows = rows_,
        .slots = caches_.slots,
        .window = s_.window,
        .rings = caches_.rings,
        .window_codes = own.rings.codes.at(0).slice(0, num_rows_),
        .window_scales = own.rings.scales.at(0).slice(0, num_rows_),
        .window_floor = {},
        .pages = caches_.pages,
        .selected = operands_.put_i32(selected, {num_rows_, s_.topk}),
        .num_selected = operands_.put_i32(counts, {num_rows_}),
        .sink = operands_.put_f32(random.normals(s_.heads), {s_.heads}),
        .rope = rope_,
        .out = operands_.zeros_act(shape),
        .trace_core = operands_.zeros(DType::kF32, shape)};
    backend_.sparse_attention(p);
    attended = operands_.floats(p.out);
    core = operands_.floats(p.trace_core);
  }

  std::vector<float> latents, entries, keys, scores, attended, core;
  std::vector<int64_t> chosen;

 private:
  static constexpr int64_t kWidth = 96;

  const Scenario s_;
  Operands operands_;
  Backend& backend_;
  StepCaches caches_;
  RowBatch rows_;
  int64_t num_rows_ = 0;
  TensorView x_;
  Rope rope_;
};

class CpuOperations : public ::testing::TestWithParam<uint64_t> {
 protected:
  Scenario scenario_ = scenario_of(GetParam());

  /// Runs `part` on the reference, and on every level with several thread counts.
  void run(void (Step::*part)(),
           const std::function<void(const Step&, const Step&)>& against_reference,
           const std::function<bool(const Step&, const Step&)>& equal) {
    SCOPED_TRACE(::testing::Message() << "seed " << GetParam());
    ThreadPool reference_pool(1);
    const auto reference_backend = make_reference_backend(Numerics::kEngine, reference_pool);
    Step reference(*reference_backend, scenario_);
    (reference.*part)();
    std::unique_ptr<Step> first;
    std::vector<std::unique_ptr<ThreadPool>> pools;
    std::vector<std::unique_ptr<Backend>> backends;
    for (const cpu::Kernels* kernels : cpu::available_kernels()) {
      for (const int threads : {1, 3}) {
        SCOPED_TRACE(::testing::Message() << kernels->level << ", " << threads << " threads");
        pools.push_back(std::make_unique<ThreadPool>(threads));
        backends.push_back(cpu::make_cpu_backend(*pools.back(), {.level = kernels->level}));
        auto step = std::make_unique<Step>(*backends.back(), scenario_);
        ((*step).*part)();
        if (first == nullptr) {
          against_reference(*step, reference);
          first = std::move(step);
        } else {
          EXPECT_TRUE(equal(*step, *first));
        }
      }
    }
  }
};

TEST_P(CpuOperations, CompressEqualsReferenceAndItself) {
  const int64_t head_dim = scenario_.head_dim;
  const int64_t index_dim = scenario_.index_dim;
  run(
      &Step::compress,
      [&](const Step& got, const Step& want) {
        EXPECT_TRUE(testing::few_changed(got.latents, want.latents, head_dim, 0.01, 0.02F));
        // A changed bf16 value can move a whole block of FP4 codes.
        EXPECT_TRUE(testing::few_changed(got.entries, want.entries, head_dim, 0.03, 0.4F));
        EXPECT_TRUE(testing::few_changed(got.keys, want.keys, index_dim, 0.05, 0.4F));
      },
      [](const Step& a, const Step& b) {
        return a.latents == b.latents && a.entries == b.entries && a.keys == b.keys;
      });
}

TEST_P(CpuOperations, IndexSelectEqualsReferenceAndItself) {
  const int64_t width =
      std::max((scenario_.context + scenario_.rows) / scenario_.ratio, int64_t{1});
  run(
      &Step::select,
      [&](const Step& got, const Step& want) {
        EXPECT_TRUE(testing::close_by_row(got.scores, want.scores, width, 2e-2F));
        EXPECT_EQ(got.chosen.size(), want.chosen.size());
      },
      [](const Step& a, const Step& b) {
        return testing::bitwise_equal(a.scores, b.scores) && a.chosen == b.chosen;
      });
}

TEST_P(CpuOperations, AttentionEqualsReferenceAndItself) {
  const int64_t head_dim = scenario_.head_dim;
  run(
      &Step::attend,
      [&](const Step& got, const Step& want) {
        EXPECT_TRUE(testing::few_changed(got.core, want.core, head_dim, 0.02, 0.01F));
        EXPECT_TRUE(testing::few_changed(got.attended, want.attended, head_dim, 0.02, 0.02F));
      },
      [](const Step& a, const Step& b) {
        return testing::bitwise_equal(a.core, b.core) &&
               testing::bitwise_equal(a.attended, b.attended);
      });
}

INSTANTIATE_TEST_SUITE_P(Seeds, CpuOperations, ::testing::Range<uint64_t>(1, 13));

}  // namespace
}  // namespace deepinfer::ops
