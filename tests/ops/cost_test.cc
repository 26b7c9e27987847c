#include "ops/cost.h"

#include <gtest/gtest.h>

#include <vector>

#include "ops/profiling_backend.h"
#include "tests/support/operands.h"

namespace deepinfer::ops {
namespace {

using testing::Operands;
using testing::Random;

/// Experts chosen by rows: [rows, 2] ids of 4 experts with matrices [64, 32] and [32, 64].
struct Routed {
  explicit Routed(Operands& operands) {
    Random random(1);
    const auto fp4 = [&](int64_t out, int64_t in) {
      weights.push_back(testing::random_fp4(random, out, in));
      return QuantView{operands.put(weights.back().values), operands.put(weights.back().scales), 1};
    };
    for (int i = 0; i < 4; ++i) routed.push_back({fp4(64, 32), fp4(64, 32), fp4(32, 64)});
  }
  std::vector<testing::Weight> weights;
  std::vector<ExpertWeights> routed;
};

TEST(Cost, CountsEveryChosenExpertOnce) {
  ThreadPool pool(1);
  const auto backend = make_reference_backend(Numerics::kEngine, pool);
  Operands operands(*backend);
  const Routed experts(operands);
  const auto cost = [&](std::vector<int32_t> ids) {
    const int64_t rows = std::ssize(ids) / 2;
    return cost_of(ExpertsParams{.x = operands.zeros_act({rows, 32}),
                                 .experts = operands.put_i32(ids, {rows, 2}),
                                 .weights = operands.zeros(DType::kF32, {rows, 2}),
                                 .routed = experts.routed,
                                 .shared = experts.routed[0],
                                 .slot_rows = operands.zeros_act({rows, 2, 32}),
                                 .shared_rows = operands.zeros_act({rows, 32})});
  };
  // 2048 values in each of three matrices: half a byte each and a scale per 32.
  constexpr double kExpertBytes = 3 * (2048 / 2 + 2048 / 32);
  constexpr double kRowBytes = 2 * 32 * 4;  // x, two slot rows, the shared row
  EXPECT_EQ(cost({1, 2}).bytes, 3 * kExpertBytes + kRowBytes);
  EXPECT_EQ(cost({1, 2, 1, 2}).bytes, 3 * kExpertBytes + 2 * kRowBytes);
  EXPECT_EQ(cost({1, 2, 1, 3}).bytes, 4 * kExpertBytes + 2 * kRowBytes);
  EXPECT_EQ(cost({1, 2}).operations, 3 * 3 * 2 * 2048.0);
  EXPECT_EQ(cost({1, 2, 1, 3}).operations, 2 * cost({1, 2}).operations);
}

TEST(ProfilingBackend, CountsCallsAndComputesTheSame) {
  ThreadPool pool(1);
  const auto profiler = make_profiling_backend(make_reference_backend(Numerics::kEngine, pool));
  Operands operands(*profiler);
  const EmbedParams p{.token = operands.put_i32(std::vector<int32_t>{1, 0, 1}, {3}),
                      .table = operands.put(Random(2).tensor(DType::kBF16, {2, 8})),
                      .streams = operands.zeros_act({3, 2, 8})};
  profiler->embed(p);
  profiler->embed(p);
  const auto& totals = profiler->profile()[static_cast<size_t>(Operation::kEmbed)];
  EXPECT_EQ(totals.calls, 2);
  EXPECT_EQ(totals.bytes, 2 * (3 * 8 * 2 + 3 * 2 * 8 * 2));
  EXPECT_GT(totals.seconds, 0);
  EXPECT_EQ(profiler->profile()[static_cast<size_t>(Operation::kQkv)].calls, 0);
  EXPECT_EQ(profiler->name(), "reference");
  const std::vector<float> table = operands.floats(p.table);
  const std::vector<float> streams = operands.floats(p.streams);
  EXPECT_TRUE(std::equal(table.begin() + 8, table.end(), streams.begin()));
}

TEST(ProfilingBackend, EveryOperationHasAName) {
  for (size_t i = 0; i < kNumOperations; ++i) {
    EXPECT_FALSE(to_string(static_cast<Operation>(i)).empty());
  }
  EXPECT_EQ(to_string(Operation::kCommit), "commit");
  EXPECT_EQ(to_string(Operation::kSparseAttention), "sparse_attention");
}

}  // namespace
}  // namespace deepinfer::ops
