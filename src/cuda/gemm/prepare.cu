#include "base/error.h"
#include "cuda/error.h"
#include "cuda/gemm.h"
#include "cuda/gemm/permute.cuh"

namespace deepinfer::cuda {
namespace {

constexpr int kThreads = 128;

/// A thread takes sixteen columns of a row; columns beyond K become zeros. Memory-bound.
template <InputRounding kRounding>
__global__ void prepare_kernel(const BFloat16* x, int64_t x_stride, int columns, int runs,
                               uint16_t* out, int64_t out_stride) {
  const int64_t row = blockIdx.x;
  const int run = static_cast<int>(blockIdx.y * kThreads + threadIdx.x);
  float values[16] = {};
  if (run * 16 < columns) {
    const BFloat16* from = x + row * x_stride + run * 16;
    float(&low)[8] = reinterpret_cast<float(&)[8]>(values[0]);
    float(&high)[8] = reinterpret_cast<float(&)[8]>(values[8]);
    load_bf16<8>(from, low);
    load_bf16<8>(from + 8, high);
  }
  if constexpr (kRounding == InputRounding::kFp8) round_trip_fp8(values);
  if (run < runs) store_permuted(values, run % 4, out + row * out_stride + run / 4 * 64);
}

}  // namespace

ProductRows prepare(const TensorView& x, InputRounding rounding, Context& context) {
  const int64_t rows = x.dim(0);
  const int64_t columns = x.dim(1);
  DEEPINFER_CHECK(columns % (rounding == InputRounding::kFp8 ? 32 : 16) == 0 &&
                      (rows <= 1 || x.stride(0) % 8 == 0) && x.stride(1) == 1,
                  "a product of rows {} with stride {}", x.shape().to_string(), x.stride(0));
  const int64_t stride = padded_columns(columns);
  const ProductRows result{.data = context.workspace->take<uint16_t>(rows * stride),
                           .num_rows = rows,
                           .columns = columns,
                           .stride = stride};
  if (rows == 0) return result;
  const auto runs = static_cast<int>(stride / 16);
  const dim3 grid(static_cast<unsigned>(rows),
                  static_cast<unsigned>((runs + kThreads - 1) / kThreads));
  const auto kernel = rounding == InputRounding::kFp8 ? prepare_kernel<InputRounding::kFp8>
                                                      : prepare_kernel<InputRounding::kNone>;
  kernel<<<grid, kThreads, 0, context.stream>>>(
      x.as<const BFloat16>(), x.stride(0), static_cast<int>(columns), runs, result.data, stride);
  DEEPINFER_CUDA_LAUNCHED("prepare");
  return result;
}

}  // namespace deepinfer::cuda
