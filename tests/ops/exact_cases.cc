// Golden operations of the exact mode (float32 activations): 1e-6 relative, choices bit for bit.
#include "tests/ops/suite.h"
#include "tests/support/compare.h"

namespace deepinfer::ops {
namespace {

using testing::close_by_row;
using testing::Golden;

constexpr float kTolerance = 2e-6F;  // of the row's largest magnitude

class ExactOps : public BackendTest {
 protected:
  void SetUp() override {
    if (!suite().exact_ops) GTEST_SKIP() << "DEEPINFER_TEST_DATA is not set";
    golden_.emplace(*suite().exact_ops);
  }
  TensorView put(const std::string& name) { return operands_.put(golden_->view(name)); }
  TensorView put(const std::string& name, const Shape& shape) {
    return operands_.put(golden_->view(name).reshape(shape));
  }
  void expect_close(const TensorView& got, const std::string& name) {
    const Shape shape = golden_->shape(name);
    EXPECT_TRUE(close_by_row(operands_.floats(got), golden_->floats(name), shape[shape.rank() - 1],
                             kTolerance))
        << name;
  }

  std::optional<Golden> golden_;
};

TEST_P(ExactOps, SiteCoefficientsMatchGoldens) {
  const Shape h = golden_->shape("hc.h");
  const int64_t rows = h[1];
  const int64_t m = h[2];
  const int64_t d = h[3];
  const std::vector<float> ones(static_cast<size_t>(rows * d), 1.0F);
  SiteBeginParams p{.streams = put("hc.h", {rows, m, d}),
                    .pre_prev = operands_.zeros(DType::kF32, {rows, m}),
                    .fn = put("hc.fn"),
                    .base = put("hc.base"),
                    .scale = put("hc.scale"),
                    .norm = operands_.put_f32(std::span(ones).first(static_cast<size_t>(d)), {d}),
                    .eps = 1e-20F,
                    .hc_eps = 1e-6F,
                    .sinkhorn_iterations = 20,
                    .x = operands_.zeros_act({rows, d}),
                    .pre = operands_.zeros(DType::kF32, {rows, m}),
                    .post = operands_.zeros(DType::kF32, {rows, m}),
                    .comb = operands_.zeros(DType::kF32, {rows, m, m})};
  backend_->site_begin(p);
  expect_close(p.pre, "hc.pre");
  expect_close(p.post, "hc.post");
  expect_close(p.comb, "hc.comb");
}

TEST_P(ExactOps, CollapseMatchesGoldens) {
  const Shape h = golden_->shape("hc.h");
  const int64_t rows = h[1];
  const int64_t d = h[3];
  const LogitsParams p{.streams = put("hc.h", {rows, h[2], d}),
                       .pre = put("hc.pre", {rows, h[2]}),
                       .norm = operands_.zeros(DType::kF32, {d}),
                       .head = operands_.zeros(DType::kF32, {1, d}),
                       .eps = 1e-20F,
                       .logits = operands_.zeros(DType::kF32, {rows, 1}),
                       .trace_collapse = operands_.zeros(DType::kF32, {rows, d}),
                       .trace_norm = {}};
  backend_->logits(p);
  expect_close(p.trace_collapse, "hc.collapsed");
}

TEST_P(ExactOps, SiteEndMatchesGoldens) {
  const Shape h = golden_->shape("hc.h");
  const int64_t rows = h[1];
  const int64_t m = h[2];
  const SiteEndParams p{.y = put("hc.y", {rows, h[3]}),
                        .post = put("hc.post", {rows, m}),
                        .comb = put("hc.comb", {rows, m, m}),
                        .streams = put("hc.h", {rows, m, h[3]})};
  backend_->site_end(p);
  expect_close(p.streams, "hc.expanded");
}

TEST_P(ExactOps, SinkhornMatchesGoldens) {
  // With fn = 0 the mixing logits are `base`.
  const Shape shape = golden_->shape("sinkhorn.logits");
  const int64_t m = shape[1];
  const int64_t coefficients = 2 * m + m * m;
  const std::vector<float> logits = golden_->floats("sinkhorn.logits");
  std::vector<float> got;
  for (int64_t i = 0; i < shape[0]; ++i) {
    std::vector<float> base(static_cast<size_t>(2 * m));
    const auto* matrix = &logits[static_cast<size_t>(i * m * m)];
    base.insert(base.end(), matrix, matrix + m * m);
    const SiteBeginParams p{.streams = operands_.zeros_act({1, m, 1}),
                            .pre_prev = operands_.zeros(DType::kF32, {1, m}),
                            .fn = operands_.zeros(DType::kF32, {coefficients, m}),
                            .base = operands_.put_f32(base, {coefficients}),
                            .scale = operands_.zeros(DType::kF32, {3}),
                            .norm = operands_.zeros(DType::kF32, {1}),
                            .eps = 1e-20F,
                            .hc_eps = 1e-6F,
                            .sinkhorn_iterations = 20,
                            .x = operands_.zeros_act({1, 1}),
                            .pre = operands_.zeros(DType::kF32, {1, m}),
                            .post = operands_.zeros(DType::kF32, {1, m}),
                            .comb = operands_.zeros(DType::kF32, {1, m, m})};
    backend_->site_begin(p);
    const std::vector<float> comb = operands_.floats(p.comb);
    got.insert(got.end(), comb.begin(), comb.end());
  }
  EXPECT_TRUE(close_by_row(got, golden_->floats("sinkhorn.comb"), m * m, kTolerance));
}

TEST_P(ExactOps, RouterMatchesGoldens) {
  const Shape x = golden_->shape("router.x");
  const Shape gate = golden_->shape("router.weight");
  const Shape idx = golden_->shape("router.idx");
  const RouteParams p{.x = put("router.x"),
                      .gate = put("router.weight"),
                      .bias = put("router.bias"),
                      .scaling = 1.5F,
                      .experts = operands_.zeros(DType::kI32, idx),
                      .weights = operands_.zeros(DType::kF32, idx),
                      .trace_scores = operands_.zeros(DType::kF32, {x[0], gate[0]})};
  backend_->route(p);
  expect_close(p.trace_scores, "router.scores");
  EXPECT_EQ(operands_.ints(p.experts), golden_->ints("router.idx"));
  expect_close(p.weights, "router.weights");
}

TEST_P(ExactOps, SqrtSoftplusMatchesGoldens) {
  const std::vector<float> x = golden_->floats("sqrtsoftplus.x");
  const auto n = static_cast<int64_t>(x.size());
  const std::vector<float> one = {1};
  const RouteParams p{.x = operands_.put_act(one, {1, 1}),
                      .gate = operands_.put_f32(x, {n, 1}),
                      .bias = operands_.zeros(DType::kF32, {n}),
                      .experts = operands_.zeros(DType::kI32, {1, 1}),
                      .weights = operands_.zeros(DType::kF32, {1, 1}),
                      .trace_scores = operands_.zeros(DType::kF32, {1, n})};
  backend_->route(p);
  EXPECT_TRUE(close_by_row(operands_.floats(p.trace_scores), golden_->floats("sqrtsoftplus.y"), 1,
                           kTolerance));
}

TEST_P(ExactOps, SwigluMatchesGoldens) {
  // An expert whose w1 and w3 pick the two halves of its input and whose w2 is the identity.
  const Shape shape = golden_->shape("swiglu.gate");
  const int64_t rows = shape[0];
  const int64_t f = shape[1];
  const int64_t d = 2 * f;
  const std::vector<float> gate = golden_->floats("swiglu.gate");
  const std::vector<float> up = golden_->floats("swiglu.up");
  std::vector<float> x;
  for (auto g = gate.begin(), u = up.begin(); g != gate.end(); g += f, u += f) {
    x.insert(x.end(), g, g + f);
    x.insert(x.end(), u, u + f);
  }
  const auto selection = [&](int64_t out, int64_t in, int64_t first) {
    std::vector<float> matrix(static_cast<size_t>(out * in));
    for (int64_t i = 0; i < std::min(out, in); ++i) {
      matrix[static_cast<size_t>(i * in + i + first)] = 1;
    }
    return operands_.place(operands_.put_f32(matrix, {out, in}));
  };
  const ExpertWeights expert{selection(f, d, 0), selection(f, d, f), selection(d, f, 0)};
  const std::vector<float> weights(static_cast<size_t>(rows), 1.0F);
  const ExpertsParams p{.x = operands_.put_act(x, {rows, d}),
                        .experts = operands_.zeros(DType::kI32, {rows, 1}),
                        .weights = operands_.put_f32(weights, {rows, 1}),
                        .routed = std::span(&expert, 1),
                        .shared = expert,
                        .limit = 10,
                        .slot_rows = operands_.zeros_act({rows, 1, d}),
                        .shared_rows = operands_.zeros_act({rows, d})};
  backend_->experts(p);
  const TensorView y = p.slot_rows.reshape({rows * 2, f});
  std::vector<float> got;
  const std::vector<float> halves = operands_.floats(y);
  for (auto half = halves.begin(); half != halves.end(); half += d) {
    got.insert(got.end(), half, half + f);
  }
  EXPECT_TRUE(close_by_row(got, golden_->floats("swiglu.y"), f, kTolerance));
  EXPECT_EQ(operands_.floats(p.shared_rows), halves);
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ExactOps);
INSTANTIATE_TEST_SUITE_P(Backends, ExactOps, ::testing::ValuesIn(backends_of(Numerics::kExact)),
                         case_name);

}  // namespace
}  // namespace deepinfer::ops
