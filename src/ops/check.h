#pragma once

#include <initializer_list>
#include <string_view>

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

}  // namespace deepinfer::ops
