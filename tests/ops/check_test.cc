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

TEST(Check, MissingOperandsAreNamed) {
  EXPECT_NE(error_of([] { check(SiteEndParams{}); }).find("site_end: streams is missing"),
            std::string::npos);
  EXPECT_NE(error_of([] { check(QkvParams{}); }).find("qkv: x is missing"), std::string::npos);
  EXPECT_NE(error_of([] { check(ExpertsParams{}); }).find("experts: x is missing"),
            std::string::npos);
}

}  // namespace
}  // namespace deepinfer::ops
