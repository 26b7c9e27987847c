#include "ops/check.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <vector>

#include "tensor/quantize.h"

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

/// What check_operand() asks for. Checks run before every operation of every step: they allocate
/// nothing unless they fail.
bool is_operand(const TensorView& view, const Shape& shape, std::initializer_list<DType> dtypes) {
  return !view.empty() && view.shape() == shape && std::ranges::count(dtypes, view.dtype()) > 0 &&
         rows_are_contiguous(view);
}

/// Entries per page, after checking what leads to them.
int64_t check_page_table(std::string_view op, const CompressedPages& pages,
                         const SlotState& slots) {
  DEEPINFER_CHECK(pages.ratio == 1 || pages.ratio == 2, "{}: ratio {}, expected 1 or 2", op,
                  pages.ratio);
  DEEPINFER_CHECK(slots.page_tokens > 0 && slots.page_tokens % 2 == 0,
                  "{}: {} tokens per page, expected an even number", op, slots.page_tokens);
  check_rank(op, "page_table", slots.page_table, 2);
  check_operand(op, "page_table", slots.page_table, slots.page_table.shape(), DType::kI32);
  return slots.page_tokens / pages.ratio;
}

}  // namespace

void check_operand(std::string_view op, std::string_view name, const TensorView& view,
                   const Shape& shape, std::initializer_list<DType> dtypes) {
  if (is_operand(view, shape, dtypes)) return;
  DEEPINFER_CHECK(!view.empty(), "{}: {} is missing, expected {} {}", op, name, shape.to_string(),
                  names_of(dtypes));
  DEEPINFER_CHECK(view.shape() == shape && std::ranges::count(dtypes, view.dtype()) > 0,
                  "{}: {} is {} {}, expected {} {}", op, name, view.shape().to_string(),
                  to_string(view.dtype()), shape.to_string(), names_of(dtypes));
  DEEPINFER_CHECK(false, "{}: the rows of {} are not contiguous", op, name);
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
  const Shape scale_shape = {scale_rows, in / kBlock};
  if (!is_operand(weight.scale, scale_shape, {DType::kE8M0})) {
    check_operand(op, fmt::format("the scale of {}", name), weight.scale, scale_shape,
                  DType::kE8M0);
  }
}

void check_rank(std::string_view op, std::string_view name, const TensorView& view, int rank) {
  DEEPINFER_CHECK(!view.empty() && view.shape().rank() == rank, "{}: {} is {}, expected rank {}",
                  op, name, view.empty() ? "missing" : view.shape().to_string(), rank);
}

void check_at_least(std::string_view op, std::string_view name, const TensorView& view,
                    int64_t num_rows, std::initializer_list<int64_t> row, DType dtype) {
  check_rank(op, name, view, static_cast<int>(row.size()) + 1);
  DEEPINFER_CHECK(view.dim(0) >= num_rows, "{}: {} has {} rows, expected at least {}", op, name,
                  view.dim(0), num_rows);
  std::array<int64_t, Shape::kMaxRank> shape = {view.dim(0)};
  std::ranges::copy(row, shape.begin() + 1);
  check_operand(op, name, view, Shape(std::span<const int64_t>(shape).first(row.size() + 1)),
                dtype);
}

void check_rows(std::string_view op, const RowBatch& rows, int64_t num_rows) {
  check_rank(op, "position", rows.position, 1);
  const int64_t batch = rows.position.dim(0);
  DEEPINFER_CHECK(batch >= num_rows, "{}: a step of {} rows, expected at least {}", op, batch,
                  num_rows);
  check_operand(op, "position", rows.position, {batch}, DType::kI64);
  check_operand(op, "slot", rows.slot, {batch}, DType::kI32);
  check_operand(op, "role", rows.role, {batch}, DType::kU8);
  check_operand(op, "span_begin", rows.span_begin, {batch}, DType::kI32);
  check_operand(op, "span_size", rows.span_size, {batch}, DType::kI32);
  check_operand(op, "span_first", rows.span_first, {batch}, DType::kI64);
  check_operand(op, "span_rows", rows.span_rows, {batch}, DType::kI32);
}

void check_entry_pages(std::string_view op, const CompressedPages& pages, const SlotState& slots,
                       int64_t width) {
  const int64_t entries = check_page_table(op, pages, slots);
  DEEPINFER_CHECK(width % kFp4KvBlock == 0, "{}: entries of {} channels, expected a multiple of {}",
                  op, width, kFp4KvBlock);
  check_rank(op, "entry_codes", pages.entry_codes, 3);
  const int64_t num_pages = pages.entry_codes.dim(0);
  check_operand(op, "entry_codes", pages.entry_codes, {num_pages, entries, width / 2},
                DType::kE2M1x2);
  check_operand(op, "entry_scales", pages.entry_scales, {num_pages, entries, width / kFp4KvBlock},
                DType::kE4M3);
}

void check_key_pages(std::string_view op, const CompressedPages& pages, const SlotState& slots,
                     int64_t width) {
  const int64_t entries = check_page_table(op, pages, slots);
  DEEPINFER_CHECK(width % kFp8Block == 0,
                  "{}: index keys of {} channels, expected a multiple of {}", op, width, kFp8Block);
  check_rank(op, "key_codes", pages.key_codes, 3);
  const int64_t num_pages = pages.key_codes.dim(0);
  check_operand(op, "key_codes", pages.key_codes, {num_pages, entries, width / 2}, DType::kE2M1x2);
  check_operand(op, "key_scales", pages.key_scales, {num_pages, entries, width / kFp8Block},
                DType::kE8M0);
}

void check_window(std::string_view op, const WindowRings& rings, const TensorView& window_codes,
                  const TensorView& window_scales, int64_t window, int64_t num_rows,
                  int64_t width) {
  check_rank(op, "ring codes", rings.codes, 3);
  const int64_t slots = rings.codes.dim(0);
  const int64_t ring_rows = rings.codes.dim(1);
  DEEPINFER_CHECK(window >= 1 && ring_rows >= window,
                  "{}: a window of {} in rings of {} rows, expected 1 to that many", op, window,
                  ring_rows);
  DEEPINFER_CHECK(width % kFp8Block == 0, "{}: keys of {} channels, expected a multiple of {}", op,
                  width, kFp8Block);
  const int64_t scales = width / kFp8Block;
  check_operand(op, "ring codes", rings.codes, {slots, ring_rows, width}, DType::kE4M3);
  check_operand(op, "ring scales", rings.scales, {slots, ring_rows, scales}, DType::kE8M0);
  check_operand(op, "ring tags", rings.tags, {slots, ring_rows}, DType::kI64);
  check_operand(op, "window_codes", window_codes, {num_rows, width}, DType::kE4M3);
  check_operand(op, "window_scales", window_scales, {num_rows, scales}, DType::kE8M0);
}

}  // namespace deepinfer::ops
