#pragma once

#include <cstdint>

#include "base/error.h"
#include "tensor/tensor.h"

/// Reading and writing rows of bf16 a vector at a time.
namespace deepinfer::cuda {

/// A small weight stored in bf16 or fp32.
struct PlainView {
  const void* data = nullptr;
  bool is_f32 = false;

  __device__ __forceinline__ float operator[](int64_t i) const {
    return is_f32 ? static_cast<const float*>(data)[i]
                  : to_float(static_cast<const BFloat16*>(data)[i]);
  }
};

inline PlainView plain(const TensorView& weight) {
  return {weight.data(), weight.dtype() == DType::kF32};
}

/// `kVec` consecutive bf16 values as fp32; 16-byte aligned if kVec is 8.
template <int kVec>
__device__ __forceinline__ void load_bf16(const BFloat16* from, float (&values)[kVec]) {
  static_assert(kVec == 1 || kVec == 8);
  if constexpr (kVec == 1) {
    values[0] = to_float(*from);
  } else {
    const uint4 raw = *reinterpret_cast<const uint4*>(from);
    const uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      values[2 * i] = __uint_as_float(words[i] << 16);
      values[2 * i + 1] = __uint_as_float(words[i] & 0xFFFF0000U);
    }
  }
}

/// Two fp32 values as bf16, the first in the low half.
__device__ __forceinline__ uint32_t pack_bf16(float first, float second) {
  return uint32_t{to_bfloat16(first).bits} | (uint32_t{to_bfloat16(second).bits} << 16);
}

/// Rounds and stores what load_bf16() reads.
template <int kVec>
__device__ __forceinline__ void store_bf16(BFloat16* to, const float (&values)[kVec]) {
  static_assert(kVec == 1 || kVec == 8);
  if constexpr (kVec == 1) {
    *to = to_bfloat16(values[0]);
  } else {
    *reinterpret_cast<uint4*>(to) =
        make_uint4(pack_bf16(values[0], values[1]), pack_bf16(values[2], values[3]),
                   pack_bf16(values[4], values[5]), pack_bf16(values[6], values[7]));
  }
}

/// Whether rows of `n` bf16 values are read in vectors of 8: a function of the static shape alone,
/// because it decides the order of sums. Backend memory is aligned, so the views must be.
inline bool reads_vectors(int64_t n, std::initializer_list<const TensorView*> views) {
  if (n % 8 != 0) return false;
  for (const TensorView* view : views) {
    const auto address = reinterpret_cast<uintptr_t>(view->data());
    DEEPINFER_CHECK(address % 16 == 0 && (view->dim(0) <= 1 || view->stride(0) % 8 == 0),
                    "rows of {} are not 16-byte aligned", view->shape().to_string());
  }
  return true;
}

}  // namespace deepinfer::cuda
