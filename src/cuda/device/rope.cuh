#pragma once

#include <cmath>
#include <cstdint>

#include "cuda/device/math.cuh"
#include "ops/rows.h"
#include "tensor/formats.h"

/// RoPE of adjacent channel pairs (spec/model.md §3).
namespace deepinfer::cuda {

struct RopeView {
  const float* inv_freq = nullptr;  // [pairs]
  int32_t pairs = 0;
};

inline RopeView view_of(const ops::Rope& rope) {
  return {rope.inv_freq.as<const float>(), static_cast<int32_t>(rope.inv_freq.dim(0))};
}

struct Rotation {
  float cosine;
  float sine;
};

/// The rotation of a pair at `position`, or its inverse. The rounding of the angle to fp32 is part
/// of the model; cosine and sine are those of the rounded angle, by double arithmetic.
DEEPINFER_HD Rotation rotation_of(int64_t position, float inv_freq, bool inverse) {
  const float angle = static_cast<float>(position) * inv_freq;
  const auto exact = static_cast<double>(inverse ? -angle : angle);
  return {static_cast<float>(cos(exact)), static_cast<float>(sin(exact))};
}

/// The channel's value after the rotation of its pair, → act; `other` is the pair's other channel.
DEEPINFER_HD float rotated(Rotation rotation, float value, float other, bool is_odd) {
  return round_to_bfloat16(is_odd ? other * rotation.sine + value * rotation.cosine
                                  : value * rotation.cosine - other * rotation.sine);
}

#ifdef __CUDACC__
/// Fills a table in shared memory, [rope.pairs]; the caller synchronises.
__device__ __forceinline__ void fill_rotations(Rotation* table, const RopeView& rope,
                                               int64_t position, bool inverse) {
  for (int i = static_cast<int>(threadIdx.x); i < rope.pairs; i += static_cast<int>(blockDim.x)) {
    table[i] = rotation_of(position, rope.inv_freq[i], inverse);
  }
}

/// A warp's 32 consecutive channels [channel - lane, …) of a head of `head_dim`, one per lane,
/// after rotation (channels in front of the rotated ones as they are).
__device__ __forceinline__ float rotate_lanes(const Rotation* table, int pairs, int head_dim,
                                              int channel, float value) {
  const float other = __shfl_xor_sync(0xFFFFFFFF, value, 1);
  const int place = channel - (head_dim - 2 * pairs);
  if (place < 0) return value;
  return rotated(table[place / 2], value, other, place % 2 != 0);
}
#endif

}  // namespace deepinfer::cuda
