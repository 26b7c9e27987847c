#include <algorithm>

#include "cuda/device/norm.cuh"
#include "cuda/device/quantize_lanes.cuh"
#include "cuda/device/rope.cuh"
#include "cuda/error.h"
#include "cuda/ops/row_ops.h"

namespace deepinfer::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kKeyThreads = 128;  // of a window key: rows of 512 channels

unsigned blocks_of(const TensorView& rows) {
  return static_cast<unsigned>(rows.dim(0));
}

template <int kVec>
__global__ void rms_norm_kernel(const BFloat16* x, int64_t x_stride, PlainView weight, float eps,
                                int n, BFloat16* out, int64_t out_stride) {
  const BFloat16* row = x + blockIdx.x * x_stride;
  BFloat16* to = out + blockIdx.x * out_stride;
  float squares = 0;
  for (int i = static_cast<int>(threadIdx.x) * kVec; i < n; i += kThreads * kVec) {
    float values[kVec];
    load_bf16<kVec>(row + i, values);
#pragma unroll
    for (int v = 0; v < kVec; ++v) squares = fma_rn(values[v], values[v], squares);
  }
  const float factor = rms_factor(block_sum<kThreads>(squares), n, eps);
  for (int i = static_cast<int>(threadIdx.x) * kVec; i < n; i += kThreads * kVec) {
    float values[kVec];
    load_bf16<kVec>(row + i, values);
#pragma unroll
    for (int v = 0; v < kVec; ++v) values[v] = weight[i + v] * (values[v] * factor);
    store_bf16<kVec>(to + i, values);
  }
}

/// A block per row: the rotations are computed once for all heads.
__global__ void rotate_heads_kernel(BFloat16* heads, int64_t stride, int num_heads, int head_dim,
                                    const int64_t* position, RopeView rope) {
  extern __shared__ Rotation rotations[];
  fill_rotations(rotations, rope, position[blockIdx.x], false);
  __syncthreads();
  BFloat16* row = heads + blockIdx.x * stride;
  for (int i = static_cast<int>(threadIdx.x); i < num_heads * rope.pairs; i += kThreads) {
    const int head = i / rope.pairs;
    const int pair = i % rope.pairs;
    BFloat16* at = row + int64_t{head} * head_dim + head_dim - 2 * (rope.pairs - pair);
    const float a = to_float(at[0]);
    const float b = to_float(at[1]);
    at[0] = to_bfloat16(rotated(rotations[pair], a, b, false));
    at[1] = to_bfloat16(rotated(rotations[pair], b, a, true));
  }
}

/// A block per row; a warp takes 32 channels (one scale) at a time.
__global__ void window_keys_kernel(const BFloat16* kv, int64_t kv_stride, PlainView norm, float eps,
                                   int head_dim, const int64_t* position, RopeView rope,
                                   uint8_t* codes, int64_t codes_stride, uint8_t* scales,
                                   int64_t scales_stride) {
  extern __shared__ Rotation rotations[];
  const BFloat16* row = kv + blockIdx.x * kv_stride;
  fill_rotations(rotations, rope, position[blockIdx.x], false);
  float squares = 0;
  for (int c = static_cast<int>(threadIdx.x); c < head_dim; c += kKeyThreads) {
    const float value = to_float(row[c]);
    squares = fma_rn(value, value, squares);
  }
  // Its barriers make the rotations visible as well.
  const float factor = rms_factor(block_sum<kKeyThreads>(squares), head_dim, eps);
  // head_dim is a multiple of 32: whole warps take part.
  for (int c = static_cast<int>(threadIdx.x); c < head_dim; c += kKeyThreads) {
    float value = round_to_bfloat16(norm[c] * (to_float(row[c]) * factor));
    value = rotate_lanes(rotations, rope.pairs, head_dim, c, value);
    const Fp8Lane quantized = quantize_fp8_lane(value);
    codes[blockIdx.x * codes_stride + c] = quantized.code;
    if (lane_id() == 0) scales[blockIdx.x * scales_stride + c / kWarp] = quantized.scale;
  }
}

template <int kVec>
__global__ void collapse_norm_kernel(const BFloat16* streams, int64_t streams_stride,
                                     const float* pre, int64_t pre_stride, int m, int d,
                                     PlainView norm, float eps, BFloat16* x, int64_t x_stride,
                                     float* trace_collapse, float* trace_norm) {
  const int64_t b = blockIdx.x;
  collapse_norm_row<kThreads, kVec>(streams + b * streams_stride, pre + b * pre_stride, m, d, norm,
                                    eps, x + b * x_stride,
                                    trace_collapse == nullptr ? nullptr : trace_collapse + b * d,
                                    trace_norm == nullptr ? nullptr : trace_norm + b * d);
}

__global__ void round_fp8_kernel(const BFloat16* x, int64_t x_stride, int n, BFloat16* out,
                                 int64_t out_stride) {
  const int64_t b = blockIdx.y;
  const int c = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (c >= n) return;  // n is a multiple of 32: whole warps leave
  const Fp8Lane quantized = quantize_fp8_lane(to_float(x[b * x_stride + c]));
  out[b * out_stride + c] =
      to_bfloat16(decode_e4m3(quantized.code) * e8m0_to_float(quantized.scale));
}

float* trace_data(const TensorView& trace) {
  return trace.empty() ? nullptr : trace.as<float>();
}

}  // namespace

void rms_norm_rows(const TensorView& x, const TensorView& weight, float eps, const TensorView& out,
                   Context& context) {
  if (x.dim(0) == 0) return;
  const auto n = static_cast<int>(x.dim(1));
  const auto kernel = reads_vectors(n, {&x, &out}) ? rms_norm_kernel<8> : rms_norm_kernel<1>;
  kernel<<<blocks_of(x), kThreads, 0, context.stream>>>(x.as<const BFloat16>(), x.stride(0),
                                                        plain(weight), eps, n, out.as<BFloat16>(),
                                                        out.stride(0));
  DEEPINFER_CUDA_LAUNCHED("rms_norm_rows");
}

void rotate_heads(const TensorView& heads, const TensorView& position, const ops::Rope& rope,
                  Context& context) {
  const RopeView view = view_of(rope);
  if (heads.dim(0) == 0 || view.pairs == 0) return;
  rotate_heads_kernel<<<blocks_of(heads), kThreads,
                        static_cast<size_t>(view.pairs) * sizeof(Rotation), context.stream>>>(
      heads.as<BFloat16>(), heads.stride(0), static_cast<int>(heads.dim(1)),
      static_cast<int>(heads.dim(2)), position.as<const int64_t>(), view);
  DEEPINFER_CUDA_LAUNCHED("rotate_heads");
}

void window_keys(const TensorView& kv, const TensorView& norm, float eps,
                 const TensorView& position, const ops::Rope& rope, const TensorView& codes,
                 const TensorView& scales, Context& context) {
  if (kv.dim(0) == 0) return;
  const RopeView view = view_of(rope);
  window_keys_kernel<<<blocks_of(kv), kKeyThreads,
                       static_cast<size_t>(view.pairs) * sizeof(Rotation), context.stream>>>(
      kv.as<const BFloat16>(), kv.stride(0), plain(norm), eps, static_cast<int>(kv.dim(1)),
      position.as<const int64_t>(), view, codes.as<uint8_t>(), codes.stride(0),
      scales.as<uint8_t>(), scales.stride(0));
  DEEPINFER_CUDA_LAUNCHED("window_keys");
}

void collapse_norm(const TensorView& streams, const TensorView& pre, const TensorView& norm,
                   float eps, const TensorView& x, const TensorView& trace_collapse,
                   const TensorView& trace_norm, Context& context) {
  if (streams.dim(0) == 0) return;
  const auto d = static_cast<int>(streams.dim(2));
  const auto kernel =
      reads_vectors(d, {&streams, &x}) ? collapse_norm_kernel<8> : collapse_norm_kernel<1>;
  kernel<<<blocks_of(streams), kThreads, 0, context.stream>>>(
      streams.as<const BFloat16>(), streams.stride(0), pre.as<const float>(), pre.stride(0),
      static_cast<int>(streams.dim(1)), d, plain(norm), eps, x.as<BFloat16>(), x.stride(0),
      trace_data(trace_collapse), trace_data(trace_norm));
  DEEPINFER_CUDA_LAUNCHED("collapse_norm");
}

void round_fp8_rows(const TensorView& x, const TensorView& out, Context& context) {
  if (x.dim(0) == 0) return;
  const auto n = static_cast<int>(x.dim(1));
  const dim3 grid(static_cast<unsigned>((n + kThreads - 1) / kThreads), blocks_of(x));
  round_fp8_kernel<<<grid, kThreads, 0, context.stream>>>(x.as<const BFloat16>(), x.stride(0), n,
                                                          out.as<BFloat16>(), out.stride(0));
  DEEPINFER_CUDA_LAUNCHED("round_fp8_rows");
}

}  // namespace deepinfer::cuda
