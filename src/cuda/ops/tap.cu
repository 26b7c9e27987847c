#include "cuda/device/load.cuh"
#include "cuda/error.h"
#include "cuda/ops/ops.h"

namespace deepinfer::cuda {
namespace {

constexpr int kThreads = 128;

/// A block per (row, 128 vectors of channels): the mean of the streams. Memory-bound.
template <int kVec>
__global__ void tap_kernel(const BFloat16* streams, int64_t streams_stride, int m, int d,
                           BFloat16* out, int64_t out_stride) {
  const int64_t b = blockIdx.y;
  const int i = static_cast<int>(blockIdx.x * kThreads + threadIdx.x) * kVec;
  if (i >= d) return;
  float sum[kVec] = {};
  for (int j = 0; j < m; ++j) {
    float values[kVec];
    load_bf16<kVec>(streams + b * streams_stride + int64_t{j} * d + i, values);
#pragma unroll
    for (int v = 0; v < kVec; ++v) sum[v] += values[v];
  }
#pragma unroll
  for (int v = 0; v < kVec; ++v) sum[v] /= static_cast<float>(m);
  store_bf16<kVec>(out + b * out_stride + i, sum);
}

}  // namespace

void tap(const ops::TapParams& p, Context& context) {
  const int64_t rows = p.streams.dim(0);
  if (rows == 0) return;
  const auto d = static_cast<int>(p.streams.dim(2));
  const bool vectors = reads_vectors(d, {&p.streams, &p.out});
  const int per_block = kThreads * (vectors ? 8 : 1);
  const dim3 grid(static_cast<unsigned>((d + per_block - 1) / per_block),
                  static_cast<unsigned>(rows));
  const auto kernel = vectors ? tap_kernel<8> : tap_kernel<1>;
  kernel<<<grid, kThreads, 0, context.stream>>>(p.streams.as<const BFloat16>(), p.streams.stride(0),
                                                static_cast<int>(p.streams.dim(1)), d,
                                                p.out.as<BFloat16>(), p.out.stride(0));
  DEEPINFER_CUDA_LAUNCHED("tap");
}

}  // namespace deepinfer::cuda
