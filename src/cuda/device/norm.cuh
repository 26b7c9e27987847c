#pragma once

#include "cuda/device/load.cuh"
#include "cuda/device/math.cuh"
#include "cuda/device/reduce.cuh"

namespace deepinfer::cuda {

/// (mean(v²) + ε)^-½ from Σ v² over n values.
__device__ __forceinline__ float rms_factor(float sum_of_squares, int n, float eps) {
  return 1.0F / sqrtf(sum_of_squares / static_cast<float>(n) + eps);
}

/// One row's x = rms(Σ_j pre[j]·S[j] → bf16; norm) → bf16 by a block of kThreads threads. streams:
/// [m, d]; pre: [m]; x: [d]. The traces may be null.
template <int kThreads, int kVec>
__device__ __forceinline__ void collapse_norm_row(const BFloat16* streams, const float* pre, int m,
                                                  int d, PlainView norm, float eps, BFloat16* x,
                                                  float* trace_collapse, float* trace_norm) {
  float squares = 0;
  for (int i = static_cast<int>(threadIdx.x) * kVec; i < d; i += kThreads * kVec) {
    float sum[kVec] = {};
    for (int j = 0; j < m; ++j) {
      float values[kVec];
      load_bf16<kVec>(streams + int64_t{j} * d + i, values);
#pragma unroll
      for (int v = 0; v < kVec; ++v) sum[v] = fma_rn(pre[j], values[v], sum[v]);
    }
    store_bf16<kVec>(x + i, sum);
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      const float rounded = round_to_bfloat16(sum[v]);
      squares = fma_rn(rounded, rounded, squares);
      if (trace_collapse != nullptr) trace_collapse[i + v] = rounded;
    }
  }
  const float factor = rms_factor(block_sum<kThreads>(squares), d, eps);
  // Each thread reads what it has written itself.
  for (int i = static_cast<int>(threadIdx.x) * kVec; i < d; i += kThreads * kVec) {
    float values[kVec];
    load_bf16<kVec>(x + i, values);
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      values[v] = norm[i + v] * (values[v] * factor);
      if (trace_norm != nullptr) trace_norm[i + v] = round_to_bfloat16(values[v]);
    }
    store_bf16<kVec>(x + i, values);
  }
}

}  // namespace deepinfer::cuda
