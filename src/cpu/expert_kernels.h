#pragma once

#include <cstdint>

#include "tensor/formats.h"

namespace deepinfer::cpu {

/// Element-wise kernels of the mixture of experts (spec/model.md §8).
struct ExpertKernels {
  /// w · (silu(a) · b) → bf16, where a and b are rounded to bf16 and, if limit > 0, clamped first.
  void (*swiglu)(const float* a, const float* b, int64_t n, float weight, float limit,
                 BFloat16* out);
  /// Gate logits divided by `temperature` to scores, in place.
  void (*sqrt_softplus)(float* v, int64_t n, float temperature);
  void (*sigmoid)(float* v, int64_t n, float temperature);
  void (*softmax)(float* v, int64_t n, float temperature);
  /// Σ rows in the order given, in fp32 → bf16.
  void (*add_rows)(const BFloat16* const* rows, int64_t count, int64_t n, BFloat16* out);
};

}  // namespace deepinfer::cpu
