#include "cuda/device/load.cuh"
#include "cuda/error.h"
#include "cuda/ops/ops.h"

namespace deepinfer::cuda {
namespace {

constexpr int kThreads = 256;

/// A block per row: reads the row once, writes it m times. Memory-bound.
template <int kVec>
__global__ void embed_kernel(const int32_t* token, const void* table, bool is_f32,
                             int64_t table_stride, int64_t vocab, int streams, int d, BFloat16* out,
                             int64_t out_stride) {
  const int64_t b = blockIdx.x;
  const int64_t id = token[b];
  if (id < 0 || id >= vocab) return;  // a bug of the caller: nothing is read out of bounds
  BFloat16* row = out + b * out_stride;
  for (int i = static_cast<int>(threadIdx.x) * kVec; i < d; i += kThreads * kVec) {
    float values[kVec];
    if (is_f32) {
      for (int v = 0; v < kVec; ++v) {
        values[v] = static_cast<const float*>(table)[id * table_stride + i + v];
      }
    } else {
      load_bf16<kVec>(static_cast<const BFloat16*>(table) + id * table_stride + i, values);
    }
    for (int j = 0; j < streams; ++j) store_bf16<kVec>(row + int64_t{j} * d + i, values);
  }
}

}  // namespace

void embed(const ops::EmbedParams& p, Context& context) {
  const int64_t rows = p.streams.dim(0);
  if (rows == 0) return;
  const auto d = static_cast<int>(p.streams.dim(2));
  const bool vectors = reads_vectors(d, {&p.table, &p.streams});
  const auto kernel = vectors ? embed_kernel<8> : embed_kernel<1>;
  kernel<<<static_cast<unsigned>(rows), kThreads, 0, context.stream>>>(
      p.token.as<const int32_t>(), p.table.data(), p.table.dtype() == DType::kF32,
      p.table.stride(0), p.table.dim(0), static_cast<int>(p.streams.dim(1)), d,
      p.streams.as<BFloat16>(), p.streams.stride(0));
  DEEPINFER_CUDA_LAUNCHED("embed");
}

}  // namespace deepinfer::cuda
