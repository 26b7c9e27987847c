#pragma once

#include <initializer_list>
#include <string_view>

#include "ops/rows.h"
#include "tensor/tensor.h"

/// What the check() functions of the operations share. A failed check is a bug of the caller
/// (ErrorCode::kInternal); its message names the operation, the operand and what would be right.
namespace deepinfer::ops {

/// Activations ("act"): bf16, or fp32 in exact mode.
inline constexpr std::initializer_list<DType> kActTypes = {DType::kBF16, DType::kF32};
/// Small weights (norms, gates): bf16 as released; fp32 is accepted too.
inline constexpr std::initializer_list<DType> kPlainTypes = {DType::kBF16, DType::kF32};

/// `view` is there, has this shape and one of these dtypes, and its rows are contiguous (only axis
/// 0 may have a stride of its own).
void check_operand(std::string_view op, std::string_view name, const TensorView& view,
                   const Shape& shape, std::initializer_list<DType> dtypes);
inline void check_operand(std::string_view op, std::string_view name, const TensorView& view,
                          const Shape& shape, DType dtype) {
  check_operand(op, name, view, shape, {dtype});
}

/// The same for an operand that may be empty.
template <typename Types>
void check_optional(std::string_view op, std::string_view name, const TensorView& view,
                    const Shape& shape, Types dtypes) {
  if (!view.empty()) check_operand(op, name, view, shape, dtypes);
}

/// A product's weight of `out` × `in` in any stored form, with scales that fit it.
void check_weight(std::string_view op, std::string_view name, const QuantView& weight, int64_t out,
                  int64_t in);

/// `view` is there and has this rank: to be called before its extents are read.
void check_rank(std::string_view op, std::string_view name, const TensorView& view, int rank);

/// `view` may have more rows than the `num_rows` that the operation runs; each is `row` of `dtype`.
void check_at_least(std::string_view op, std::string_view name, const TensorView& view,
                    int64_t num_rows, std::initializer_list<int64_t> row, DType dtype);

/// The addresses of a step of at least `num_rows` rows, of which the operation runs the first ones.
void check_rows(std::string_view op, const RowBatch& rows, int64_t num_rows);

/// Compressed pages of latents of `width` channels or of index keys of `width` channels, and the
/// page table that leads to them.
void check_entry_pages(std::string_view op, const CompressedPages& pages, const SlotState& slots,
                       int64_t width);
void check_key_pages(std::string_view op, const CompressedPages& pages, const SlotState& slots,
                     int64_t width);

/// Rings of keys of `width` channels with at least `window` rows, and a step's keys for them.
void check_window(std::string_view op, const WindowRings& rings, const TensorView& window_codes,
                  const TensorView& window_scales, int64_t window, int64_t num_rows, int64_t width);

}  // namespace deepinfer::ops
