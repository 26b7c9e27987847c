#pragma once

#include <cstdint>

#include "cuda/context.h"
#include "tensor/tensor.h"

/// The products of all operations: y = x·Wᵀ with fp32 sums, for weights in any stored form. One
/// arithmetic for every number of rows (docs/cuda-kernels.md): a row's result is a function of that
/// row, the weight and the segment table alone.
namespace deepinfer::cuda {

/// What a product's input gets before it (spec/model.md §10 item 3).
enum class InputRounding : uint8_t { kNone, kFp8 };

/// Rows as the product kernels read them: bf16, the columns of every 64 permuted so that a thread's
/// weights are consecutive in memory, zeros up to a multiple of 256 columns. In the workspace.
struct ProductRows {
  uint16_t* data = nullptr;
  int64_t num_rows = 0;
  int64_t columns = 0;  // K
  int64_t stride = 0;   // elements from row to row: K rounded up to 256

  /// The first `count` rows.
  ProductRows first(int64_t count) const { return {data, count, columns, stride}; }
};

/// Columns of a row of ProductRows with K columns.
constexpr int64_t padded_columns(int64_t columns) {
  return (columns + 255) / 256 * 256;
}

/// `x`: [rows, K] bf16, rows contiguous, K a multiple of 16 (32 with kFp8).
ProductRows prepare(const TensorView& x, InputRounding rounding, Context& context);

/// y [rows, N] (bf16 or fp32) = x · weightᵀ. The weight has x.columns columns.
void linear(const QuantView& weight, const ProductRows& x, const TensorView& y, Context& context);
/// The same for x [rows, K] bf16 that one product reads only. Weights that the matrix units do not
/// take (fp32, K not a multiple of 16) go through linear_plain().
void linear(const QuantView& weight, const TensorView& x, InputRounding rounding,
            const TensorView& y, Context& context);

/// Block-diagonal product: `weight` is [groups·N, K], `x` holds rows·groups rows (group after group
/// of each row), y is [rows, groups·N].
void grouped_linear(const QuantView& weight, const ProductRows& x, int64_t groups,
                    const TensorView& y, Context& context);

/// Columns of W that one accumulator takes: part of the numerics. Small weights are cut so that a
/// few rows can be spread over the device.
constexpr int64_t segment_columns(int64_t outputs, int64_t columns) {
  return outputs <= 2048 && columns > 512 ? 512 : padded_columns(columns);
}

}  // namespace deepinfer::cuda
