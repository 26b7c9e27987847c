#include "cuda/device/load.cuh"
#include "cuda/device/math.cuh"
#include "cuda/error.h"
#include "cuda/ops/ops.h"

namespace deepinfer::cuda {
namespace {

constexpr int kThreads = 128;

/// A block per (row, 128 vectors of channels). A thread holds its channels of all streams before it
/// writes any of them. kStreams ≥ m. Memory-bound.
template <int kVec, int kStreams>
__global__ void site_end_kernel(const BFloat16* y, int64_t y_stride, const float* post,
                                int64_t post_stride, const float* comb, int64_t comb_stride,
                                BFloat16* streams, int64_t streams_stride, int m, int d) {
  const int64_t b = blockIdx.y;
  const int i = static_cast<int>(blockIdx.x * kThreads + threadIdx.x) * kVec;
  if (i >= d) return;
  BFloat16* row = streams + b * streams_stride + i;
  float before[kStreams][kVec];
#pragma unroll
  for (int j = 0; j < kStreams; ++j) {
    if (j < m) load_bf16<kVec>(row + int64_t{j} * d, before[j]);
  }
  float added[kVec];
  load_bf16<kVec>(y + b * y_stride + i, added);
#pragma unroll
  for (int k = 0; k < kStreams; ++k) {
    if (k >= m) break;
    float sum[kVec];
    const float weight = post[b * post_stride + k];
#pragma unroll
    for (int v = 0; v < kVec; ++v) sum[v] = weight * added[v];
#pragma unroll
    for (int j = 0; j < kStreams; ++j) {
      if (j >= m) break;
      const float mix = comb[b * comb_stride + j * m + k];
#pragma unroll
      for (int v = 0; v < kVec; ++v) sum[v] = fma_rn(mix, before[j][v], sum[v]);
    }
    store_bf16<kVec>(row + int64_t{k} * d, sum);
  }
}

}  // namespace

void site_end(const ops::SiteEndParams& p, Context& context) {
  const int64_t rows = p.streams.dim(0);
  if (rows == 0) return;
  const auto m = static_cast<int>(p.streams.dim(1));
  const auto d = static_cast<int>(p.streams.dim(2));
  DEEPINFER_CHECK(m <= 16, "site_end: {} streams, at most 16", m);
  const bool vectors = reads_vectors(d, {&p.y, &p.streams});
  const auto kernel = vectors ? (m <= 4 ? site_end_kernel<8, 4> : site_end_kernel<8, 16>)
                              : (m <= 4 ? site_end_kernel<1, 4> : site_end_kernel<1, 16>);
  const int per_block = kThreads * (vectors ? 8 : 1);
  const dim3 grid(static_cast<unsigned>((d + per_block - 1) / per_block),
                  static_cast<unsigned>(rows));
  kernel<<<grid, kThreads, 0, context.stream>>>(
      p.y.as<const BFloat16>(), p.y.stride(0), p.post.as<const float>(), p.post.stride(0),
      p.comb.as<const float>(), p.comb.stride(0), p.streams.as<BFloat16>(), p.streams.stride(0), m,
      d);
  DEEPINFER_CUDA_LAUNCHED("site_end");
}

}  // namespace deepinfer::cuda
