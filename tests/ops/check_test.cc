#include "ops/check.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "ops/backend.h"

namespace deepinfer::ops {
namespace {

std::string error_of(const auto& function) {
  try {
    function();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInternal);
    return error.what();
  }
  return "";
}

TEST(CheckOperand, NamesOperationOperandAndExpectation) {
  const Tensor x(DType::kF32, {2, 3});
  const std::string error =
      error_of([&] { check_operand("route", "x", x, {2, 4}, {DType::kBF16, DType::kF32}); });
  EXPECT_NE(error.find("route: x is [2, 3] F32, expected [2, 4] BF16 or F32"), std::string::npos)
      << error;
  EXPECT_NE(error_of([&] { check_operand("route", "x", x, {2, 3}, DType::kI32); }), "");
  EXPECT_NE(error_of([&] { check_operand("route", "x", {}, {2, 3}, DType::kF32); }), "");
  EXPECT_EQ(error_of([&] { check_operand("route", "x", x, {2, 3}, DType::kF32); }), "");
}

TEST(CheckOperand, LetsOnlyTheFirstAxisBeStrided) {
  const Tensor x(DType::kF32, {2, 3, 4});
  EXPECT_EQ(
      error_of([&] { check_operand("tap", "out", x.view().select(1, 2), {2, 4}, DType::kF32); }),
      "");
  EXPECT_NE(
      error_of([&] { check_operand("tap", "out", x.view().select(2, 0), {2, 3}, DType::kF32); }),
      "");
}

TEST(CheckWeight, ComparesScalesWithTheShape) {
  const Tensor codes(DType::kE4M3, {40, 64});
  const Tensor scales(DType::kE8M0, {2, 2});
  const Tensor fp4(DType::kE2M1x2, {40, 32});
  const Tensor row_scales(DType::kE8M0, {40, 2});
  const Tensor plain(DType::kBF16, {40, 64});
  EXPECT_EQ(error_of([&] { check_weight("qkv", "wkv", {codes, scales, 32}, 40, 64); }), "");
  EXPECT_EQ(error_of([&] { check_weight("qkv", "wkv", {fp4, row_scales, 1}, 40, 64); }), "");
  EXPECT_EQ(error_of([&] { check_weight("qkv", "wkv", {plain, {}, 1}, 40, 64); }), "");
  EXPECT_NE(error_of([&] { check_weight("qkv", "wkv", {codes, scales, 1}, 40, 64); }), "");
  EXPECT_NE(error_of([&] { check_weight("qkv", "wkv", {codes, {}, 32}, 40, 64); }), "");
  EXPECT_NE(error_of([&] { check_weight("qkv", "wkv", {codes, scales, 0}, 40, 64); }), "");
}

TEST(CheckRows, AStepMayHaveMoreRowsThanRunButNotFewer) {
  const Tensor longs(DType::kI64, {3});
  const Tensor ints(DType::kI32, {3});
  const Tensor roles(DType::kU8, {3});
  const RowBatch rows{.token = ints,
                      .position = longs,
                      .slot = ints,
                      .role = roles,
                      .span_begin = ints,
                      .span_size = ints,
                      .span_first = longs,
                      .span_rows = ints,
                      .context = {}};
  EXPECT_EQ(error_of([&] { check_rows("compress", rows, 2); }), "");
  EXPECT_NE(error_of([&] { check_rows("compress", rows, 4); }).find("expected at least 4"),
            std::string::npos);
}

TEST(CheckWindow, RingsHoldAtLeastTheWindow) {
  const Tensor codes(DType::kE4M3, {2, 40, 32});
  const Tensor scales(DType::kE8M0, {2, 40, 1});
  const Tensor tags(DType::kI64, {2, 40});
  const WindowRings rings{codes, scales, tags};
  const Tensor step(DType::kE4M3, {5, 32});
  const Tensor step_scales(DType::kE8M0, {5, 1});
  const auto check_for = [&](int64_t window, int64_t num_rows) {
    return error_of(
        [&] { check_window("attention", rings, step, step_scales, window, num_rows, 32); });
  };
  EXPECT_EQ(check_for(40, 5), "");
  EXPECT_NE(check_for(41, 5), "");
  EXPECT_NE(check_for(0, 5), "");
  EXPECT_NE(check_for(40, 6), "");
}

TEST(Check, MissingOperandsAreNamed) {
  EXPECT_NE(error_of([] { check(SiteEndParams{}); }).find("site_end: streams is missing"),
            std::string::npos);
  EXPECT_NE(error_of([] { check(QkvParams{}); }).find("qkv: x is missing"), std::string::npos);
  EXPECT_NE(error_of([] { check(CompressParams{}); }).find("compress: x is missing"),
            std::string::npos);
  EXPECT_NE(error_of([] { check(IndexSelectParams{}); }).find("index_select: x is missing"),
            std::string::npos);
  EXPECT_NE(error_of([] { check(SparseAttentionParams{}); }).find("sparse_attention: q is missing"),
            std::string::npos);
  EXPECT_NE(error_of([] { check(ExpertsParams{}); }).find("experts: x is missing"),
            std::string::npos);
}

}  // namespace
}  // namespace deepinfer::ops
