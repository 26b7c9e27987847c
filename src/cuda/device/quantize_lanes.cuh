#pragma once

#include "cuda/device/quantize.cuh"
#include "cuda/device/reduce.cuh"

/// The fake quantisers of spec/model.md §6 on a warp's 32 consecutive channels, one per lane.
namespace deepinfer::cuda {

/// The largest magnitude of the aligned group of `kLanes` lanes, at least `smallest`.
template <int kLanes>
__device__ __forceinline__ float group_max(float value, float smallest) {
  float amax = fmaxf(smallest, fabsf(value));
#pragma unroll
  for (int offset = kLanes / 2; offset > 0; offset /= 2) {
    amax = fmaxf(amax, __shfl_xor_sync(kAllLanes, amax, offset));
  }
  return amax;
}

struct Fp8Lane {
  uint8_t code;
  uint8_t scale;  // e8m0 of the 32 channels
};

__device__ __forceinline__ Fp8Lane quantize_fp8_lane(float value) {
  const uint8_t scale = fp8_scale(group_max<32>(value, kFp8SmallestMax));
  return {fp8_code(value, e8m0_to_float(scale)), scale};
}

struct Fp4Lane {
  uint32_t code;
  uint8_t scale;
};

/// Indexer queries and keys: an e8m0 scale for the 32 channels.
__device__ __forceinline__ Fp4Lane quantize_fp4_index_lane(float value) {
  const uint8_t scale = fp4_index_scale(group_max<32>(value, kFp4IndexSmallestMax));
  return {fp4_code(value, e8m0_to_float(scale)), scale};
}

/// Compressed entries: an e4m3 scale for each 16 channels.
__device__ __forceinline__ Fp4Lane quantize_fp4_entry_lane(float value) {
  const uint8_t scale = fp4_entry_scale(group_max<16>(value, kFp4EntrySmallestMax));
  return {fp4_code(value, decode_e4m3(scale)), scale};
}

/// Even lanes get the byte of their own code (low nibble) and the next lane's.
__device__ __forceinline__ uint8_t pair_codes(uint32_t code) {
  return static_cast<uint8_t>(code | (__shfl_down_sync(kAllLanes, code, 1) << 4));
}

}  // namespace deepinfer::cuda
