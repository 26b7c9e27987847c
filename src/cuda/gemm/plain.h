#pragma once

#include "cuda/context.h"
#include "tensor/tensor.h"

namespace deepinfer::cuda {

/// y [B, N] (bf16 or fp32) = x · weightᵀ for a weight in any stored form and any number of columns,
/// without matrix units: a warp per output. x: [B, K] bf16, already rounded where it must be. For
/// what the matrix units do not take (fp32 weights, odd shapes); the weight's type and shape alone
/// decide who computes a product.
void linear_plain(const QuantView& weight, const TensorView& x, const TensorView& y,
                  Context& context);

}  // namespace deepinfer::cuda
