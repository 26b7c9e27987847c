// The reference's shared arithmetic by itself: products, norms, rotations.
#include <gtest/gtest.h>

#include <cmath>

#include "ops/reference/common.h"
#include "ops/rope_table.h"
#include "tests/support/compare.h"
#include "tests/support/golden.h"
#include "tests/support/tensors.h"

namespace deepinfer::ops::reference {
namespace {

using testing::bitwise_equal;
using testing::close_by_row;
using testing::Golden;
using testing::Random;
using testing::within_one_bf16_step;

ThreadPool& pool() {
  static ThreadPool pool(2);
  return pool;
}

Golden exact() {
  return Golden(testing::data_path("ops.safetensors"));
}
Golden released() {
  return Golden(testing::data_path("ops_released.safetensors"));
}

TEST(Dot, AddsEveryElementOnceForEveryLength) {
  for (int64_t n = 0; n <= 67; ++n) {
    std::vector<float> a;
    const std::vector<float> ones(static_cast<size_t>(n), 1.0F);
    for (int64_t i = 0; i < n; ++i) a.push_back(static_cast<float>(i));
    EXPECT_EQ(dot(a.data(), ones.data(), n), static_cast<float>(n * (n - 1) / 2));
  }
}

TEST(Linear, MatchesReleasedGoldens) {
  const Golden golden = released();
  const Context context{Numerics::kEngine, &pool()};
  const Shape x = golden.shape("linear.x");
  const QuantView weight = golden.fp8("linear");
  for (const auto& [name, input] : {std::pair{"linear", InputRounding::kFp8},
                                    std::pair{"linear_plain", InputRounding::kNone}}) {
    std::vector<float> y(static_cast<size_t>(x[0] * weight.rows()));
    linear(context, weight, golden.floats("linear.x"), x[0], y, input, ResultRounding::kNone);
    EXPECT_TRUE(close_by_row(y, golden.floats(fmt::format("{}.sum", name)), weight.rows(), 1e-6F))
        << name;
    linear(context, weight, golden.floats("linear.x"), x[0], y, input, ResultRounding::kAct);
    EXPECT_TRUE(within_one_bf16_step(y, golden.floats(fmt::format("{}.y", name)),
                                     golden.ints(fmt::format("{}.y_firm", name))))
        << name;
  }
}

TEST(DequantizeRow, MatchesGoldens) {
  const Golden golden = exact();
  QuantView by_row = golden.fp8("weight_fp8row");
  by_row.scale_rows = 1;
  for (const auto& [name, weight] :
       {std::pair{"weight_fp8", golden.fp8("weight_fp8")}, std::pair{"weight_fp8row", by_row},
        std::pair{"weight_fp4", golden.fp4("weight_fp4")}}) {
    const auto columns = static_cast<size_t>(weight.cols());
    std::vector<float> values(static_cast<size_t>(weight.rows()) * columns);
    for (int64_t o = 0; o < weight.rows(); ++o) {
      dequantize_row(weight, o, row_of(values, o, columns));
    }
    EXPECT_TRUE(bitwise_equal(values, golden.floats(fmt::format("{}.dequant", name)))) << name;
  }
}

TEST(RmsNorm, ZeroRowGivesZeros) {
  std::vector<float> x(64, 0.0F);
  const std::vector<float> weight(64, 3.0F);
  rms_norm({Numerics::kEngine, &pool()}, x, testing::to_tensor(weight, DType::kBF16, {64}), 1e-20F);
  EXPECT_EQ(x, std::vector<float>(64, 0.0F));
}

TEST(RopeTable, MatchesGoldensBitForBit) {
  const Golden golden = exact();
  EXPECT_TRUE(bitwise_equal(rope_inv_freq(64, 10000), golden.floats("inv_freq.main")));
  EXPECT_TRUE(bitwise_equal(rope_inv_freq(64, 160000, YarnScaling{.factor = 16}),
                            golden.floats("inv_freq.compress_yarn")));
}

struct RopeCase {
  const char* name;
  std::vector<float> inv_freq;
};

std::vector<RopeCase> rope_cases() {
  return {{"rope_main", rope_inv_freq(64, 10000)},
          {"rope_compress", rope_inv_freq(64, 160000, YarnScaling{.factor = 16})}};
}

/// Rotates every row of NAME.x, or NAME.y backwards.
std::vector<float> rotated(const Golden& golden, const RopeCase& rope_case, Numerics numerics,
                           bool inverse) {
  const std::string name = rope_case.name;
  const std::vector<int64_t> positions = golden.ints(name + ".pos");
  std::vector<float> x = golden.floats(name + (inverse ? ".y" : ".x"));
  const Tensor inv_freq = testing::to_tensor(rope_case.inv_freq, DType::kF32, {32});
  const size_t size = x.size() / positions.size();
  for (size_t i = 0; i < positions.size(); ++i) {
    rotate({numerics, &pool()}, row_of(x, static_cast<int64_t>(i), size), {inv_freq.view()},
           positions[i], inverse);
  }
  return x;
}

TEST(Rotate, MatchesExactGoldens) {
  const Golden golden = exact();
  for (const RopeCase& c : rope_cases()) {
    const std::string name = c.name;
    const int64_t size = golden.shape(name + ".x")[1];
    EXPECT_TRUE(close_by_row(rotated(golden, c, Numerics::kExact, false),
                             golden.floats(name + ".y"), size, 1e-6F));
    EXPECT_TRUE(close_by_row(rotated(golden, c, Numerics::kExact, true),
                             golden.floats(name + ".inverse_of_y"), size, 1e-6F));
  }
}

TEST(Rotate, MatchesReleasedGoldensBitForBit) {
  const Golden golden = released();
  for (const RopeCase& c : rope_cases()) {
    const std::string name = c.name;
    EXPECT_TRUE(
        bitwise_equal(rotated(golden, c, Numerics::kEngine, false), golden.floats(name + ".y")));
    EXPECT_TRUE(bitwise_equal(rotated(golden, c, Numerics::kEngine, true),
                              golden.floats(name + ".inverse_of_y")));
  }
}

TEST(Linear, ResultDoesNotDependOnRowsOrThreads) {
  constexpr uint64_t kSeed = 11;
  SCOPED_TRACE(::testing::Message() << "seed " << kSeed);
  Random random(kSeed);
  constexpr int64_t kIn = 160;
  constexpr int64_t kOut = 129;
  const testing::Weight weight = testing::random_fp8(random, kOut, kIn);
  const std::vector<float> x = random.normals(129 * kIn);
  ThreadPool one(1);
  std::vector<float> all(129 * kOut);
  linear({Numerics::kEngine, &one}, weight.view(), x, 129, all, InputRounding::kFp8,
         ResultRounding::kAct);
  for (const int threads : {1, 2, 5}) {
    ThreadPool some(threads);
    for (const int64_t rows : {0, 1, 127, 128}) {
      std::vector<float> y(static_cast<size_t>(rows * kOut));
      linear({Numerics::kEngine, &some}, weight.view(),
             std::span(x).first(static_cast<size_t>(rows * kIn)), rows, y, InputRounding::kFp8,
             ResultRounding::kAct);
      EXPECT_TRUE(bitwise_equal(y, std::span(all).first(y.size())));
    }
  }
}

}  // namespace
}  // namespace deepinfer::ops::reference
