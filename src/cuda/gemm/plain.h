#pragma once

#include "cuda/context.h"
#include "tensor/tensor.h"

namespace deepinfer::cuda {

/// y [B, N] (bf16 or fp32) = x · weightᵀ for what the matrix units do not take: fp32 weights, and
/// bf16 weights with any number of columns. x: [B, K] bf16. Which path a product takes is a matter
/// of the weight's type and shape alone. Slow: the released model has no such product.
void linear_plain(const QuantView& weight, const TensorView& x, const TensorView& y,
                  Context& context);

}  // namespace deepinfer::cuda
