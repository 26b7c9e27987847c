#pragma once

#include "cpu/context.h"
#include "ops/rows.h"

/// What several operations do with one row.
namespace deepinfer::cpu {

/// rms(x; weight) → bf16 for a bf16 or fp32 weight; out may be x.
inline void rms_norm(const Context& context, const BFloat16* x, const TensorView& weight, float eps,
                     BFloat16* out) {
  const int64_t n = weight.dim(0);
  if (weight.dtype() == DType::kBF16) {
    context.kernels.rows.rms_norm(x, weight.as<const BFloat16>(), n, eps, out);
  } else {
    context.kernels.rows.rms_norm_f32(x, weight.as<const float>(), n, eps, out);
  }
}

/// cos and sin of one position's angles, with the padding that the rotation kernels want.
struct Rotation {
  Rotation(Arena& arena, int64_t pairs)
      : cosine(arena.take<float>((pairs + 15) / 16 * 16)),
        sine(arena.take<float>((pairs + 15) / 16 * 16)) {}

  /// `sign` -1: to rotate back.
  void fill(const Context& context, int64_t position, const ops::Rope& rope, double sign) const {
    context.kernels.rows.rotation(position, rope.inv_freq.as<const float>(), rope.inv_freq.dim(0),
                                  sign, cosine, sine);
  }

  float* cosine;
  float* sine;
};

}  // namespace deepinfer::cpu
