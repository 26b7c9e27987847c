#include "ops/check.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <vector>

namespace deepinfer::ops {
namespace {

std::string names_of(std::initializer_list<DType> dtypes) {
  std::vector<std::string_view> names;
  for (const DType dtype : dtypes) names.push_back(to_string(dtype));
  return fmt::format("{}", fmt::join(names, " or "));
}

bool rows_are_contiguous(const TensorView& view) {
  int64_t stride = 1;
  for (int axis = view.shape().rank() - 1; axis >= 1; --axis) {
    if (view.dim(axis) > 1 && view.stride(axis) != stride) return false;
    stride *= view.dim(axis);
  }
  return true;
}

}  // namespace

void check_operand(std::string_view op, std::string_view name, const TensorView& view,
                   const Shape& shape, std::initializer_list<DType> dtypes) {
  DEEPINFER_CHECK(!view.empty(), "{}: {} is missing, expected {} {}", op, name, shape.to_string(),
                  names_of(dtypes));
  DEEPINFER_CHECK(view.shape() == shape && std::ranges::count(dtypes, view.dtype()) > 0,
                  "{}: {} is {} {}, expected {} {}", op, name, view.shape().to_string(),
                  to_string(view.dtype()), shape.to_string(), names_of(dtypes));
  DEEPINFER_CHECK(rows_are_contiguous(view), "{}: the rows of {} are not contiguous", op, name);
}

void check_weight(std::string_view op, std::string_view name, const QuantView& weight, int64_t out,
                  int64_t in) {
  const TensorView& values = weight.weight;
  const bool fp4 = values.dtype() == DType::kE2M1x2;
  check_operand(op, name, values, {out, fp4 ? in / 2 : in},
                {DType::kBF16, DType::kF32, DType::kE4M3, DType::kE2M1x2});
  if (values.dtype() == DType::kBF16 || values.dtype() == DType::kF32) return;
  constexpr int64_t kBlock = 32;
  DEEPINFER_CHECK(in % kBlock == 0 && weight.scale_rows >= 1,
                  "{}: {} has {} columns and {} rows per scale, expected a multiple of {} and at "
                  "least 1",
                  op, name, in, weight.scale_rows, kBlock);
  const int64_t scale_rows = (out + weight.scale_rows - 1) / weight.scale_rows;
  check_operand(op, fmt::format("the scale of {}", name), weight.scale, {scale_rows, in / kBlock},
                DType::kE8M0);
}

void check_rank(std::string_view op, std::string_view name, const TensorView& view, int rank) {
  DEEPINFER_CHECK(!view.empty() && view.shape().rank() == rank, "{}: {} is {}, expected rank {}",
                  op, name, view.empty() ? "missing" : view.shape().to_string(), rank);
}

}  // namespace deepinfer::ops
