#pragma once

#include <cstdint>

/// Sums over the threads of a block in a fixed order: a function of the block's size alone.
namespace deepinfer::cuda {

inline constexpr int kWarp = 32;
inline constexpr uint32_t kAllLanes = 0xFFFFFFFF;

__device__ __forceinline__ int lane_id() {
  return static_cast<int>(threadIdx.x) % kWarp;
}
__device__ __forceinline__ int warp_id() {
  return static_cast<int>(threadIdx.x) / kWarp;
}

/// The sum over the lanes, equal in all of them (addition commutes, so both partners of every
/// exchange get the same bits).
template <typename T>
__device__ __forceinline__ T warp_sum(T value) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, offset);
  }
  return value;
}

__device__ __forceinline__ float warp_max(float value) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, offset));
  }
  return value;
}

/// Sums of `kCount` values over the block; every thread gets them. Warps are added in ascending
/// order.
template <int kThreads, int kCount, typename T>
__device__ __forceinline__ void block_sum(T (&values)[kCount]) {
  constexpr int kWarps = kThreads / kWarp;
  __shared__ T of_warp[kCount][kWarps];
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    values[i] = warp_sum(values[i]);
    if (lane_id() == 0) of_warp[i][warp_id()] = values[i];
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    values[i] = of_warp[i][0];
#pragma unroll
    for (int w = 1; w < kWarps; ++w) values[i] += of_warp[i][w];
  }
  __syncthreads();  // the memory may be used again
}

template <int kThreads, typename T>
__device__ __forceinline__ T block_sum(T value) {
  T values[1] = {value};
  block_sum<kThreads>(values);
  return values[0];
}

/// Lane l gets the sum over all lanes of their values[l]: 31 exchanges instead of 32 · 5. In each
/// step a lane hands half of its values to its partner and adds what it gets to the other half.
/// (Recursive, so that every index is a constant and the values stay in registers.)
template <int kHalf = kWarp / 2>
__device__ __forceinline__ float warp_transposed_sum(float (&values)[kWarp]) {
  const bool is_upper = (lane_id() & kHalf) != 0;
#pragma unroll
  for (int i = 0; i < kHalf; ++i) {
    const float mine = is_upper ? values[i + kHalf] : values[i];
    const float other = is_upper ? values[i] : values[i + kHalf];
    values[i] = mine + __shfl_xor_sync(kAllLanes, other, kHalf);
  }
  if constexpr (kHalf > 1) return warp_transposed_sum<kHalf / 2>(values);
  return values[0];
}

/// Sum of the values of the threads before this one; `total` is that of all. `of_warp`:
/// [kThreads / 32] in shared memory.
template <int kThreads, typename T>
__device__ __forceinline__ T block_exclusive_sum(T value, T* of_warp, T& total) {
  constexpr int kWarps = kThreads / kWarp;
  T inclusive = value;
#pragma unroll
  for (int offset = 1; offset < kWarp; offset *= 2) {
    const T before = __shfl_up_sync(kAllLanes, inclusive, offset);
    if (lane_id() >= offset) inclusive += before;
  }
  if (lane_id() == kWarp - 1) of_warp[warp_id()] = inclusive;
  __syncthreads();
  T before = 0;
  total = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    if (w < warp_id()) before += of_warp[w];
    total += of_warp[w];
  }
  __syncthreads();
  return before + inclusive - value;
}

}  // namespace deepinfer::cuda
