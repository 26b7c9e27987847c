#include "base/error.h"
#include "cuda/device/load.cuh"
#include "cuda/error.h"
#include "cuda/ops/ops.h"

namespace deepinfer::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kMaxChoices = 128;

/// A block per (row, 128 vectors of channels): adds the row's expert rows by ascending id, the
/// shared one last, in fp32. Memory-bound.
template <int kVec>
__global__ void combine_kernel(const int32_t* experts, int64_t experts_stride, int choices,
                               const BFloat16* slot_rows, int64_t slot_stride,
                               const BFloat16* shared_rows, int64_t shared_stride, int d,
                               BFloat16* y, int64_t y_stride) {
  __shared__ int order[kMaxChoices];
  const int64_t b = blockIdx.y;
  const int32_t* ids = experts + b * experts_stride;
  for (int i = static_cast<int>(threadIdx.x); i < choices; i += kThreads) {
    int rank = 0;
    for (int j = 0; j < choices; ++j) rank += ids[j] < ids[i] || (ids[j] == ids[i] && j < i);
    order[rank] = i;
  }
  __syncthreads();
  const int i = static_cast<int>(blockIdx.x * kThreads + threadIdx.x) * kVec;
  if (i >= d) return;
  float sum[kVec] = {};
  const auto add = [&](const BFloat16* row) {
    float values[kVec];
    load_bf16<kVec>(row + i, values);
#pragma unroll
    for (int v = 0; v < kVec; ++v) sum[v] += values[v];
  };
  const BFloat16* row = slot_rows + b * slot_stride;
  for (int c = 0; c < choices; ++c) add(row + int64_t{order[c]} * d);
  add(shared_rows + b * shared_stride);
  store_bf16<kVec>(y + b * y_stride + i, sum);
}

}  // namespace

void combine(const ops::CombineParams& p, Context& context) {
  const int64_t rows = p.y.dim(0);
  if (rows == 0) return;
  const auto choices = static_cast<int>(p.experts.dim(1));
  DEEPINFER_CHECK(choices <= kMaxChoices, "combine: {} experts per row, at most {}", choices,
                  kMaxChoices);
  const auto d = static_cast<int>(p.y.dim(1));
  const bool vectors = reads_vectors(d, {&p.slot_rows, &p.shared_rows, &p.y});
  const int per_block = kThreads * (vectors ? 8 : 1);
  const dim3 grid(static_cast<unsigned>((d + per_block - 1) / per_block),
                  static_cast<unsigned>(rows));
  const auto kernel = vectors ? combine_kernel<8> : combine_kernel<1>;
  kernel<<<grid, kThreads, 0, context.stream>>>(
      p.experts.as<const int32_t>(), p.experts.stride(0), choices, p.slot_rows.as<const BFloat16>(),
      p.slot_rows.stride(0), p.shared_rows.as<const BFloat16>(), p.shared_rows.stride(0), d,
      p.y.as<BFloat16>(), p.y.stride(0));
  DEEPINFER_CUDA_LAUNCHED("combine");
}

}  // namespace deepinfer::cuda
