#include "bench/cuda/kernels.h"
#include "cuda/error.h"

namespace deepinfer::bench {
namespace {

constexpr int kFillBlocks = 1024;
constexpr int kFillThreads = 256;
constexpr int kReadThreads = 512;
constexpr int kReadBlocksPerMultiprocessor = 8;

__global__ void read_kernel(const uint4* from, int64_t count, uint32_t* sink) {
  constexpr int kInFlight = 4;
  uint32_t sum = 0;
  const int64_t stride = int64_t{gridDim.x} * blockDim.x;
  const auto add = [&](const uint4& v) { sum += v.x ^ v.y ^ v.z ^ v.w; };
  int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (; i + (kInFlight - 1) * stride < count; i += kInFlight * stride) {
    uint4 v[kInFlight];
#pragma unroll
    for (int j = 0; j < kInFlight; ++j) v[j] = __ldcs(from + i + j * stride);
#pragma unroll
    for (int j = 0; j < kInFlight; ++j) add(v[j]);
  }
  for (; i < count; i += stride) add(from[i]);
  if (sum == 0x12345678) *sink = sum;
}

__device__ __forceinline__ uint32_t random_word(int64_t i, uint32_t seed) {
  uint32_t x = static_cast<uint32_t>(i) * 2654435761U + seed * 0x9E3779B9U;
  x ^= x >> 16;
  x *= 0x7FEB352DU;
  x ^= x >> 15;
  x *= 0x846CA68BU;
  x ^= x >> 16;
  return x;
}

__global__ void fill_bits_kernel(uint32_t* to, int64_t words, uint32_t mask, uint32_t base,
                                 uint32_t seed) {
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < words;
       i += int64_t{gridDim.x} * blockDim.x) {
    to[i] = (random_word(i, seed) & mask) + base;
  }
}

/// The sum of four uniform bytes: standard deviation 147.8.
__global__ void fill_normal_kernel(float* to, int64_t count, float deviation, uint32_t seed) {
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count;
       i += int64_t{gridDim.x} * blockDim.x) {
    const uint32_t x = random_word(i, seed);
    const auto sum =
        static_cast<int>((x & 0xFF) + (x >> 8 & 0xFF) + (x >> 16 & 0xFF) + (x >> 24)) - 510;
    // A fraction of a step, so that equal sums are not ties.
    const float fraction = static_cast<float>(random_word(i, seed + 1)) * 0x1p-32F;
    to[i] = (static_cast<float>(sum) + fraction) * (deviation / 147.8F);
  }
}

__global__ void empty_kernel() {}

}  // namespace

void read_once(const void* data, int64_t bytes, void* sink, int num_multiprocessors,
               cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(num_multiprocessors * kReadBlocksPerMultiprocessor);
  read_kernel<<<blocks, kReadThreads, 0, stream>>>(static_cast<const uint4*>(data), bytes / 16,
                                                   static_cast<uint32_t*>(sink));
  DEEPINFER_CUDA_LAUNCHED("the read of the benchmark");
}

void fill_bits(void* data, int64_t bytes, uint32_t mask, uint32_t base, uint32_t seed,
               cudaStream_t stream) {
  fill_bits_kernel<<<kFillBlocks, kFillThreads, 0, stream>>>(static_cast<uint32_t*>(data),
                                                             (bytes + 3) / 4, mask, base, seed);
  DEEPINFER_CUDA_LAUNCHED("the fill of the benchmark");
}

void fill_normal(float* data, int64_t count, float deviation, uint32_t seed, cudaStream_t stream) {
  fill_normal_kernel<<<kFillBlocks, kFillThreads, 0, stream>>>(data, count, deviation, seed);
  DEEPINFER_CUDA_LAUNCHED("the fill of the benchmark");
}

void do_nothing(cudaStream_t stream) {
  empty_kernel<<<1, 32, 0, stream>>>();
  DEEPINFER_CUDA_LAUNCHED("the empty kernel of the benchmark");
}

}  // namespace deepinfer::bench
