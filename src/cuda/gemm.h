#pragma once

#include <cstdint>

#include "cuda/context.h"
#include "tensor/tensor.h"

/// The products of all operations: y = x·Wᵀ with fp32 sums, for weights in any stored form. One
/// arithmetic for every number of rows (docs/cuda-kernels.md): a row's result is a function of that
/// row and the weight alone.
namespace deepinfer::cuda {

/// What a product's input gets before it (spec/model.md §10 item 3).
enum class InputRounding : uint8_t { kNone, kFp8 };

/// y [B, N] (bf16 or fp32) = x [B, K] bf16 · weightᵀ.
void linear(const QuantView& weight, const TensorView& x, InputRounding rounding,
            const TensorView& y, Context& context);

}  // namespace deepinfer::cuda
