#pragma once

#include <cstdint>

#include "cuda/device/load.cuh"
#include "cuda/device/quantize.cuh"

/// The column order of ProductRows (see gemm/weights.cuh).
namespace deepinfer::cuda {

/// Where the pair of numbers 8v + n and 8v + 4 + n of thread q's sixteen goes, in elements of the
/// block of 64; pair = 4v + n.
DEEPINFER_HD int permuted_column(int q, int pair) {
  return pair / 2 * 16 + pair % 2 * 8 + q * 2;
}

/// Writes sixteen consecutive columns [16q, 16q + 16) of a block.
__device__ __forceinline__ void store_permuted(const float (&values)[16], int q, uint16_t* block) {
#pragma unroll
  for (int pair = 0; pair < 8; ++pair) {
    const int i = pair / 4 * 8 + pair % 4;
    *reinterpret_cast<uint32_t*>(block + permuted_column(q, pair)) =
        pack_bf16(values[i], values[i + 4]);
  }
}

/// The FP8 round trip of spec/model.md §6 for half a block of 32; the neighbouring lane holds the
/// other half. All lanes of the warp take part.
__device__ __forceinline__ void round_trip_fp8(float (&values)[16]) {
  float amax = kFp8SmallestMax;
#pragma unroll
  for (const float v : values) amax = fmaxf(amax, fabsf(v));
  amax = fmaxf(amax, __shfl_xor_sync(0xFFFFFFFF, amax, 1));
  const uint32_t code = fp8_scale(amax);
  const float scale = from_bits(code << 23);
  const float inverse = from_bits((254 - code) << 23);  // exact: the scale is a power of two
#pragma unroll
  for (float& v : values) {
    v = decode_e4m3(encode_e4m3(clamp_magnitude(v * inverse, 448.0F))) * scale;
  }
}

}  // namespace deepinfer::cuda
