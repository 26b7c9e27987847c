#include "cuda/device/formats.cuh"
#include "cuda/device/load.cuh"
#include "cuda/device/reduce.cuh"
#include "cuda/error.h"
#include "cuda/gemm/plain.h"

namespace deepinfer::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;

/// A weight as stored.
struct StoredWeight {
  const void* values;
  int64_t stride;  // elements as stored (pairs for e2m1x2)
  const uint8_t* scales;
  int64_t scales_stride;
  int64_t scale_rows;
};

template <DType kType>
__device__ __forceinline__ float value_at(const StoredWeight& w, int64_t o, int k) {
  if constexpr (kType == DType::kF32) return static_cast<const float*>(w.values)[o * w.stride + k];
  if constexpr (kType == DType::kBF16) {
    return to_float(static_cast<const BFloat16*>(w.values)[o * w.stride + k]);
  }
  const auto* codes = static_cast<const uint8_t*>(w.values) + o * w.stride;
  const float scale = e8m0_to_float(w.scales[o / w.scale_rows * w.scales_stride + k / 32]);
  if constexpr (kType == DType::kE4M3) return decode_e4m3(codes[k]) * scale;
  return decode_e2m1((codes[k / 2] >> (k % 2 * 4)) & 0xFU) * scale;
}

/// A warp per (output, row): lane l adds columns l, l + 32, … with fma, then the butterfly.
template <DType kType>
__global__ void plain_kernel(const StoredWeight weight, const BFloat16* x, int64_t x_stride,
                             int outputs, int columns, void* y, int64_t y_stride, bool is_f32) {
  const int64_t b = blockIdx.y;
  const int o = static_cast<int>(blockIdx.x) * kWarps + warp_id();
  if (o >= outputs) return;
  float sum = 0;
  for (int k = lane_id(); k < columns; k += kWarp) {
    sum = fma_rn(value_at<kType>(weight, o, k), to_float(x[b * x_stride + k]), sum);
  }
  sum = warp_sum(sum);
  if (lane_id() != 0) return;
  if (is_f32) {
    static_cast<float*>(y)[b * y_stride + o] = sum;
  } else {
    static_cast<BFloat16*>(y)[b * y_stride + o] = to_bfloat16(sum);
  }
}

auto kernel_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return plain_kernel<DType::kF32>;
    case DType::kBF16:
      return plain_kernel<DType::kBF16>;
    case DType::kE4M3:
      return plain_kernel<DType::kE4M3>;
    default:
      DEEPINFER_CHECK(dtype == DType::kE2M1x2, "product of a weight of {}", to_string(dtype));
      return plain_kernel<DType::kE2M1x2>;
  }
}

}  // namespace

void linear_plain(const QuantView& weight, const TensorView& x, const TensorView& y,
                  Context& context) {
  if (x.dim(0) == 0) return;
  DEEPINFER_CHECK(weight.cols() == x.dim(1), "product of weight {} and {}",
                  weight.weight.shape().to_string(), x.shape().to_string());
  const StoredWeight stored{weight.weight.data(), weight.weight.stride(0),
                            weight.scale.empty() ? nullptr : weight.scale.as<const uint8_t>(),
                            weight.scale.empty() ? 0 : weight.scale.stride(0), weight.scale_rows};
  const auto outputs = static_cast<int>(weight.rows());
  const dim3 grid(static_cast<unsigned>((outputs + kWarps - 1) / kWarps),
                  static_cast<unsigned>(x.dim(0)));
  const auto kernel = kernel_of(weight.weight.dtype());
  kernel<<<grid, kThreads, 0, context.stream>>>(stored, x.as<const BFloat16>(), x.stride(0),
                                                outputs, static_cast<int>(x.dim(1)), y.data(),
                                                y.stride(0), y.dtype() == DType::kF32);
  DEEPINFER_CUDA_LAUNCHED("linear_plain");
}

}  // namespace deepinfer::cuda
