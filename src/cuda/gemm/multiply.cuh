#pragma once

#include <cstdint>

#include "cuda/gemm/weights.cuh"
#include "cuda/ptx/mma.cuh"
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#include "cuda/ptx/wgmma.cuh"
#endif

/// The matrix instruction of the family. Both give the same bits for the same columns in the same
/// order (docs/cuda-kernels.md), whatever the number of rows.
namespace deepinfer::cuda {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/// acc [64, kN] += a [64, 64] · tile [kN, 64]ᵀ, in the background: `a`, `tile` and `acc` belong to
/// the instruction until wait_multiply().
template <int kN>
__device__ __forceinline__ void multiply(float (&acc)[kN / 2], const Fragments& a,
                                         const uint8_t* tile) {
  const uint64_t descriptor = ptx::swizzled_tile(tile);
  ptx::wgmma_fence();
#pragma unroll
  for (int s = 0; s < 4; ++s) ptx::Wgmma<kN>::run(acc, a[s], descriptor + 2 * s);
  ptx::wgmma_commit();
}
/// At most `kPending` products are still running.
template <int kPending>
__device__ __forceinline__ void wait_multiply() {
  ptx::wgmma_wait<kPending>();
}
/// Uses of `acc` stay behind the wait.
template <int kCount>
__device__ __forceinline__ void keep_sums(float (&acc)[kCount]) {
#pragma unroll
  for (float& v : acc) ptx::keep(v);
}

#else

template <int kN>
__device__ __forceinline__ void multiply(float (&acc)[kN / 2], const Fragments& a,
                                         const uint8_t* tile) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int g = lane / 4;
  const int q = lane % 4;
#pragma unroll
  for (int s = 0; s < 4; ++s) {
#pragma unroll
    for (int j = 0; j < kN / 8; ++j) {
      // Row 8j + g; its 16-byte chunks are swizzled by the row.
      const uint8_t* row = tile + (8 * j + g) * 128 + q * 4;
      const auto b0 = *reinterpret_cast<const uint32_t*>(row + ((2 * s) ^ g) * 16);
      const auto b1 = *reinterpret_cast<const uint32_t*>(row + ((2 * s + 1) ^ g) * 16);
      ptx::mma_16x8x16(reinterpret_cast<float(&)[4]>(acc[4 * j]), a[s], {b0, b1});
    }
  }
}
template <int kPending>
__device__ __forceinline__ void wait_multiply() {}
template <int kCount>
__device__ __forceinline__ void keep_sums(float (& /*acc*/)[kCount]) {}

#endif

}  // namespace deepinfer::cuda
