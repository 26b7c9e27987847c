// Golden operations of the released mode (bf16 activations): bit for bit where no order of summing
// can round elsewhere, at most one bf16 step otherwise.
#include <numeric>

#include "ops/reference/common.h"
#include "tests/ops/suite.h"
#include "tests/support/compare.h"

namespace deepinfer::ops {
namespace {

using testing::bitwise_equal;
using testing::close_by_row;
using testing::Golden;
using testing::within_one_bf16_step;

class ReleasedOps : public BackendTest {
 protected:
  void SetUp() override {
    if (!suite().released_ops) GTEST_SKIP() << "DEEPINFER_TEST_DATA is not set";
    golden_.emplace(*suite().released_ops);
  }
  TensorView put_act(const std::string& name, const Shape& shape) {
    return operands_.put(golden_->tensor(name, DType::kBF16, shape));
  }
  TensorView put_act(const std::string& name) { return put_act(name, golden_->shape(name)); }
  TensorView put_f32(const std::string& name, const Shape& shape) {
    return operands_.put(golden_->tensor(name, DType::kF32, shape));
  }
  /// The n × n identity in bf16.
  QuantView identity(int64_t n) {
    std::vector<float> matrix(static_cast<size_t>(n * n));
    for (int64_t i = 0; i < n; ++i) matrix[static_cast<size_t>(i * n + i)] = 1;
    return operands_.place(operands_.put(testing::to_tensor(matrix, DType::kBF16, {n, n})));
  }

  std::optional<Golden> golden_;
};

TEST_P(ReleasedOps, Fp8LinearMatchesGoldens) {
  // wo_a, whose input is not rounded, hands x on unchanged; wo_b is the product.
  const Shape x = golden_->shape("linear.x");
  const QuantView weight = operands_.place(golden_->fp8("linear"));
  const OutputProjectionParams p{.o = put_act("linear.x", {x[0], 1, x[1]}),
                                 .groups = 1,
                                 .wo_a = identity(x[1]),
                                 .wo_b = weight,
                                 .y = operands_.zeros_act({x[0], weight.rows()})};
  backend_->output_projection(p);
  EXPECT_TRUE(within_one_bf16_step(operands_.floats(p.y), golden_->floats("linear.y"),
                                   golden_->ints("linear.y_firm")));
}

TEST_P(ReleasedOps, ExpertMatchesGoldens) {
  const Shape x = golden_->shape("expert.x");
  const ExpertWeights expert{operands_.place(golden_->fp4("expert.w1")),
                             operands_.place(golden_->fp4("expert.w3")),
                             operands_.place(golden_->fp4("expert.w2"))};
  const ExpertsParams p{.x = put_act("expert.x"),
                        .experts = operands_.zeros(DType::kI32, {x[0], 1}),
                        .weights = put_f32("expert.weight_of_row", {x[0], 1}),
                        .routed = std::span(&expert, 1),
                        .shared = expert,
                        .limit = 10,
                        .slot_rows = operands_.zeros_act({x[0], 1, x[1]}),
                        .shared_rows = operands_.zeros_act(x)};
  backend_->experts(p);
  EXPECT_TRUE(within_one_bf16_step(operands_.floats(p.slot_rows), golden_->floats("expert.out"),
                                   golden_->ints("expert.out_firm")));
}

TEST_P(ReleasedOps, CombineMatchesGoldens) {
  const Shape rows = golden_->shape("combine.rows");
  const CombineParams p{.experts = operands_.put(golden_->view("combine.expert_ids")),
                        .slot_rows = put_act("combine.rows"),
                        .shared_rows = put_act("combine.shared"),
                        .y = operands_.zeros_act({rows[0], rows[2]})};
  backend_->combine(p);
  EXPECT_TRUE(bitwise_equal(operands_.floats(p.y), golden_->floats("combine.y")));
}

TEST_P(ReleasedOps, CombineAddsByAscendingIdAndSharedLast) {
  // In any other order 1 or 0.5 survives elsewhere: 2^24 swallows what is added to it.
  const std::vector<int32_t> ids = {9, 5, 2};
  const std::vector<float> rows = {-0x1p24F, 0x1p24F, 1};
  const std::vector<float> shared = {0.5F};
  const CombineParams p{.experts = operands_.put_i32(ids, {1, 3}),
                        .slot_rows = operands_.put_act(rows, {1, 3, 1}),
                        .shared_rows = operands_.put_act(shared, {1, 1}),
                        .y = operands_.zeros_act({1, 1})};
  backend_->combine(p);
  EXPECT_EQ(operands_.floats(p.y), std::vector<float>{0.5F});
}

TEST_P(ReleasedOps, QueriesComeFromTheRoundedLatent) {
  constexpr uint64_t kSeed = 5;
  SCOPED_TRACE(::testing::Message() << "seed " << kSeed);
  testing::Random random(kSeed);
  constexpr int64_t kRows = 20;
  const testing::Weight wq_a = testing::random_fp8(random, 64, 96);
  const testing::Weight wq_b = testing::random_fp8(random, 4 * 32, 64);
  const testing::Weight wkv = testing::random_fp8(random, 32, 96);
  const std::vector<float> ones(64, 1.0F);
  const TensorView norm = operands_.put_act(ones, {64});
  const QkvParams p{.x = operands_.put(random.tensor(DType::kBF16, {kRows, 96})),
                    .position = operands_.zeros(DType::kI64, {kRows}),  // 0: nothing rotates
                    .wq_a = operands_.place(wq_a.view()),
                    .q_norm = norm,
                    .wq_b = operands_.place(wq_b.view()),
                    .wkv = operands_.place(wkv.view()),
                    .kv_norm = norm.slice(0, 32),
                    .rope = {operands_.zeros(DType::kF32, {8})},
                    .eps = 1e-20F,
                    .r = operands_.zeros_act({kRows, 64}),
                    .q = operands_.zeros_act({kRows, 4, 32}),
                    .window_codes = operands_.zeros(DType::kE4M3, {kRows, 32}),
                    .window_scales = operands_.zeros(DType::kE8M0, {kRows, 1})};
  backend_->qkv(p);
  std::vector<float> q(static_cast<size_t>(kRows * 4 * 32));
  reference::linear({Numerics::kEngine, &pool_}, wq_b.view(), operands_.floats(p.r), kRows, q,
                    reference::InputRounding::kFp8, reference::ResultRounding::kAct);
  EXPECT_TRUE(testing::few_changed(operands_.floats(p.q), q, 4 * 32, 0.01, 0.01F));
}

TEST_P(ReleasedOps, KeysOfMoreRowsThanQueriesHaveTheSameBits) {
  constexpr uint64_t kSeed = 6;
  SCOPED_TRACE(::testing::Message() << "seed " << kSeed);
  testing::Random random(kSeed);
  constexpr int64_t kRows = 40;
  const testing::Weight wq_a = testing::random_fp8(random, 64, 96);
  const testing::Weight wq_b = testing::random_fp8(random, 4 * 32, 64);
  const testing::Weight wkv = testing::random_fp8(random, 32, 96);
  std::vector<int64_t> positions(kRows);
  std::iota(positions.begin(), positions.end(), 1000);
  QkvParams p{.x = operands_.put(random.tensor(DType::kBF16, {kRows, 96})),
              .position = operands_.put(testing::to_tensor(positions, {kRows})),
              .wq_a = operands_.place(wq_a.view()),
              .q_norm = operands_.put(random.tensor(DType::kBF16, {64})),
              .wq_b = operands_.place(wq_b.view()),
              .wkv = operands_.place(wkv.view()),
              .kv_norm = operands_.put(random.tensor(DType::kBF16, {32})),
              .rope = {operands_.put_f32(rope_inv_freq(16, 10000), {8})},
              .eps = 1e-20F,
              .r = {},
              .q = {},
              .window_codes = {},
              .window_scales = {}};
  const auto run = [&](int64_t queries) {
    p.r = operands_.zeros_act({kRows, 64}).slice(0, queries);
    p.q = operands_.zeros_act({kRows, 4, 32}).slice(0, queries);
    p.window_codes = operands_.zeros(DType::kE4M3, {kRows, 32});
    p.window_scales = operands_.zeros(DType::kE8M0, {kRows, 1});
    backend_->qkv(p);
    return std::pair(operands_.ints(p.window_codes), operands_.floats(p.q));
  };
  const auto [codes, q] = run(kRows);
  for (const int64_t queries : {0, 1, 7, 33}) {
    const auto [some_codes, some_q] = run(queries);
    EXPECT_EQ(some_codes, codes) << queries;
    const auto count = static_cast<size_t>(queries * 4 * 32);
    EXPECT_TRUE(testing::bitwise_equal(some_q, std::span(q).first(count))) << queries;
  }
}

TEST_P(ReleasedOps, RmsMatchesGoldens) {
  // One stream with coefficient 1 collapses to itself.
  const Shape x = golden_->shape("rms.x");
  const std::vector<float> ones(static_cast<size_t>(x[0]), 1.0F);
  const LogitsParams p{.streams = put_act("rms.x", {x[0], 1, x[1]}),
                       .pre = operands_.put_f32(ones, {x[0], 1}),
                       .norm = put_act("rms.weight"),
                       .head = operands_.zeros(DType::kBF16, {1, x[1]}),
                       .eps = 1e-20F,
                       .logits = operands_.zeros(DType::kF32, {x[0], 1}),
                       .trace_collapse = {},
                       .trace_norm = operands_.zeros(DType::kF32, x)};
  backend_->logits(p);
  const std::vector<int64_t> nowhere_firm(static_cast<size_t>(x[0] * x[1]));
  EXPECT_TRUE(
      within_one_bf16_step(operands_.floats(p.trace_norm), golden_->floats("rms.y"), nowhere_firm));
}

TEST_P(ReleasedOps, StreamsMatchGoldens) {
  if (!golden_->has("hc.h")) GTEST_SKIP() << "only the large goldens have hc";
  const Shape h = golden_->shape("hc.h");
  const int64_t rows = h[1];
  const int64_t m = h[2];
  const int64_t d = h[3];
  const std::vector<int64_t> nowhere_firm(static_cast<size_t>(rows * m * d));
  const SiteBeginParams begin{.streams = put_act("hc.h", {rows, m, d}),
                              .pre_prev = put_f32("hc.pre", {rows, m}),
                              .fn = put_f32("hc.fn", golden_->shape("hc.fn")),
                              .base = put_f32("hc.base", golden_->shape("hc.base")),
                              .scale = put_f32("hc.scale", {3}),
                              .norm = operands_.zeros(DType::kBF16, {d}),
                              .eps = 1e-20F,
                              .hc_eps = 1e-6F,
                              .sinkhorn_iterations = 20,
                              .x = operands_.zeros_act({rows, d}),
                              .pre = operands_.zeros(DType::kF32, {rows, m}),
                              .post = operands_.zeros(DType::kF32, {rows, m}),
                              .comb = operands_.zeros(DType::kF32, {rows, m, m})};
  backend_->site_begin(begin);
  EXPECT_TRUE(close_by_row(operands_.floats(begin.pre), golden_->floats("hc.pre"), m, 2e-6F));
  EXPECT_TRUE(close_by_row(operands_.floats(begin.post), golden_->floats("hc.post"), m, 2e-6F));
  EXPECT_TRUE(close_by_row(operands_.floats(begin.comb), golden_->floats("hc.comb"), m, 2e-6F));

  const SiteEndParams end{.y = put_act("hc.y", {rows, d}),
                          .post = put_f32("hc.post", {rows, m}),
                          .comb = put_f32("hc.comb", {rows, m, m}),
                          .streams = put_act("hc.h", {rows, m, d})};
  backend_->site_end(end);
  EXPECT_TRUE(within_one_bf16_step(operands_.floats(end.streams), golden_->floats("hc.expanded"),
                                   nowhere_firm));
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ReleasedOps);
INSTANTIATE_TEST_SUITE_P(Backends, ReleasedOps, ::testing::ValuesIn(backends_of(Numerics::kEngine)),
                         case_name);

}  // namespace
}  // namespace deepinfer::ops
