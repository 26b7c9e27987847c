#pragma once

#include "cuda/device/formats.cuh"

/// The fake quantisers of spec/model.md §6, element by element: a block's scale from its largest
/// magnitude, then a code from a value and the scale. Divisions are true fp32 divisions. Who finds
/// the largest magnitude starts from the rule's smallest one; NaN never becomes a maximum.
namespace deepinfer::cuda {

inline constexpr float kFp8SmallestMax = 1e-4F;
inline constexpr float kFp4IndexSmallestMax = 6 * 0x1p-126F;
inline constexpr float kFp4EntrySmallestMax = 6 * 0x1p-9F;

/// x within ±limit; NaN stays.
DEEPINFER_HD float clamp_magnitude(float x, float limit) {
  if (x < -limit) return -limit;
  return limit < x ? limit : x;
}

/// e8m0 scale of an FP8 block (window keys, inputs of products).
DEEPINFER_HD uint8_t fp8_scale(float amax) {
  return ceil_to_e8m0(amax * (1.0F / 448.0F));
}
DEEPINFER_HD uint8_t fp8_code(float x, float scale) {
  return encode_e4m3(clamp_magnitude(x / scale, 448.0F));
}

/// e8m0 scale of an FP4 block of indexer queries and keys.
DEEPINFER_HD uint8_t fp4_index_scale(float amax) {
  return ceil_to_e8m0(amax * (1.0F / 6.0F));
}
/// e4m3 scale of an FP4 block of compressed entries.
DEEPINFER_HD uint8_t fp4_entry_scale(float amax) {
  return encode_e4m3(amax / 6.0F);
}
DEEPINFER_HD uint32_t fp4_code(float x, float scale) {
  return encode_e2m1(clamp_magnitude(x / scale, 6.0F));
}

}  // namespace deepinfer::cuda
