#include "cuda/device/load.cuh"
#include "cuda/device/math.cuh"
#include "cuda/device/reduce.cuh"
#include "cuda/error.h"
#include "cuda/gemm/plain.h"

namespace deepinfer::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;

/// A warp per (output, row): lane l adds columns l, l + 32, … with fma, then the butterfly.
__global__ void plain_kernel(PlainView weight, int64_t weight_stride, const BFloat16* x,
                             int64_t x_stride, int outputs, int columns, void* y, int64_t y_stride,
                             bool is_f32) {
  const int64_t b = blockIdx.y;
  const int o = static_cast<int>(blockIdx.x) * kWarps + warp_id();
  if (o >= outputs) return;
  float sum = 0;
  for (int k = lane_id(); k < columns; k += kWarp) {
    sum = fma_rn(weight[o * weight_stride + k], to_float(x[b * x_stride + k]), sum);
  }
  sum = warp_sum(sum);
  if (lane_id() != 0) return;
  if (is_f32) {
    static_cast<float*>(y)[b * y_stride + o] = sum;
  } else {
    static_cast<BFloat16*>(y)[b * y_stride + o] = to_bfloat16(sum);
  }
}

}  // namespace

void linear_plain(const QuantView& weight, const TensorView& x, const TensorView& y,
                  Context& context) {
  if (x.dim(0) == 0) return;
  DEEPINFER_CHECK(weight.scale.empty() && weight.cols() == x.dim(1), "product of weight {} and {}",
                  weight.weight.shape().to_string(), x.shape().to_string());
  const auto outputs = static_cast<int>(weight.rows());
  const dim3 grid(static_cast<unsigned>((outputs + kWarps - 1) / kWarps),
                  static_cast<unsigned>(x.dim(0)));
  plain_kernel<<<grid, kThreads, 0, context.stream>>>(
      plain(weight.weight), weight.weight.stride(0), x.as<const BFloat16>(), x.stride(0), outputs,
      static_cast<int>(x.dim(1)), y.data(), y.stride(0), y.dtype() == DType::kF32);
  DEEPINFER_CUDA_LAUNCHED("linear_plain");
}

}  // namespace deepinfer::cuda
