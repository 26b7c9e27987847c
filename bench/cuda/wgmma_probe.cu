// Does the result of one output element of wgmma depend on N, on the column it sits in, or on
// whether A comes from registers or shared memory? And are the bits those of mma.sync? The answers
// decide how the products' kernels may be tiled (docs/cuda-kernels.md).

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

#include "cuda/ptx/async.cuh"
#include "cuda/ptx/mma.cuh"
#include "cuda/ptx/wgmma.cuh"

namespace {

using deepinfer::cuda::ptx::Wgmma;
namespace ptx = deepinfer::cuda::ptx;

constexpr int kM = 64;
constexpr int kMaxN = 256;
constexpr int kBlockK = 64;

void check(cudaError_t result, const char* what) {
  if (result == cudaSuccess) return;
  std::printf("%s: %s\n", what, cudaGetErrorString(result));
  std::exit(1);
}

/// Writes rows [rows, 64] of bf16 as a swizzled tile.
__device__ void fill_tile(__nv_bfloat16* tile, const __nv_bfloat16* rows, int num_rows,
                          int stride) {
  for (int i = threadIdx.x; i < num_rows * 8; i += blockDim.x) {
    const int row = i / 8;
    const int chunk = i % 8;
    const auto* from = reinterpret_cast<const uint4*>(rows + row * stride + chunk * 8);
    *reinterpret_cast<uint4*>(tile + row * kBlockK + (chunk ^ (row % 8)) * 8) = *from;
  }
}

__device__ uint32_t pair_at(const __nv_bfloat16* a, int k, int row, int column) {
  return *reinterpret_cast<const uint32_t*>(a + row * k + column);
}

/// a [64, k], b [n, k] → d [64, n], one warpgroup.
template <int kN>
__global__ void run_wgmma(const __nv_bfloat16* a, const __nv_bfloat16* b, int k,
                          bool a_in_registers, float* d) {
  extern __shared__ uint8_t memory[];
  auto* base =
      reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(memory) + 1023) & ~uintptr_t{1023});
  auto* a_tile = reinterpret_cast<__nv_bfloat16*>(base);
  auto* b_tile = a_tile + kM * kBlockK;
  const int lane = threadIdx.x % 32;
  const int row = threadIdx.x / 32 * 16 + lane / 4;
  float acc[kN / 2];
#pragma unroll
  for (int i = 0; i < kN / 2; ++i) acc[i] = 0;
  for (int k0 = 0; k0 < k; k0 += kBlockK) {
    fill_tile(a_tile, a + k0, kM, k);
    fill_tile(b_tile, b + k0, kN, k);
    ptx::fence_async_shared();
    __syncthreads();
    uint32_t regs[4][4];
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      const int column = k0 + s * 16 + lane % 4 * 2;
      regs[s][0] = pair_at(a, k, row, column);
      regs[s][1] = pair_at(a, k, row + 8, column);
      regs[s][2] = pair_at(a, k, row, column + 8);
      regs[s][3] = pair_at(a, k, row + 8, column + 8);
    }
    ptx::wgmma_fence();
    if (a_in_registers) {
#pragma unroll
      for (int s = 0; s < 4; ++s) Wgmma<kN>::run(acc, regs[s], ptx::swizzled_tile(b_tile) + s * 2);
    } else {
#pragma unroll
      for (int s = 0; s < 4; ++s) {
        Wgmma<kN>::run(acc, ptx::swizzled_tile(a_tile) + s * 2, ptx::swizzled_tile(b_tile) + s * 2);
      }
    }
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>();
    __syncthreads();
  }
#pragma unroll
  for (int j = 0; j < kN / 8; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      d[(row + i / 2 * 8) * kN + j * 8 + lane % 4 * 2 + i % 2] = acc[4 * j + i];
    }
  }
}

/// The same with mma.sync for n = 8 columns.
__global__ void run_mma(const __nv_bfloat16* a, const __nv_bfloat16* b, int k, float* d) {
  const int lane = threadIdx.x % 32;
  const int row = threadIdx.x / 32 * 16 + lane / 4;
  float acc[4] = {};
  for (int k0 = 0; k0 < k; k0 += 16) {
    const int column = k0 + lane % 4 * 2;
    const uint32_t a_regs[4] = {pair_at(a, k, row, column), pair_at(a, k, row + 8, column),
                                pair_at(a, k, row, column + 8), pair_at(a, k, row + 8, column + 8)};
    const uint32_t b_regs[2] = {pair_at(b, k, lane / 4, column),
                                pair_at(b, k, lane / 4, column + 8)};
    ptx::mma_16x8x16(acc, a_regs, b_regs);
  }
  for (int i = 0; i < 4; ++i) {
    d[(row + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = acc[i];
  }
}

struct Result {
  std::vector<float> values;  // [64, n]
  int n;
};

template <int kN>
Result wgmma(const __nv_bfloat16* a, const __nv_bfloat16* b, int k, bool registers, float* d) {
  constexpr int kBytes = (kM + kN) * kBlockK * 2 + 1024;
  check(cudaFuncSetAttribute(run_wgmma<kN>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes),
        "shared memory");
  check(cudaMemset(d, 0xFF, kM * kMaxN * 4), "poison");
  run_wgmma<kN><<<1, 128, kBytes>>>(a, b, k, registers, d);
  check(cudaGetLastError(), "launch");
  Result result{std::vector<float>(kM * kN), kN};
  check(cudaMemcpy(result.values.data(), d, kM * kN * 4, cudaMemcpyDeviceToHost), "wgmma");
  return result;
}

/// Outputs of the columns both have, which differ in bits.
int differences(const Result& x, const Result& y) {
  int count = 0;
  const int n = x.n < y.n ? x.n : y.n;
  for (int m = 0; m < kM; ++m) {
    for (int j = 0; j < n; ++j) {
      count += std::memcmp(&x.values[m * x.n + j], &y.values[m * y.n + j], 4) != 0;
    }
  }
  return count;
}

double worst_error(const Result& x, const std::vector<float>& a, const std::vector<float>& b,
                   int k) {
  double worst = 0;
  for (int m = 0; m < kM; ++m) {
    for (int j = 0; j < 8; ++j) {
      double sum = 0;
      double size = 0;
      for (int i = 0; i < k; ++i) {
        const double product = double{a[m * k + i]} * b[j * k + i];
        sum += product;
        size += std::abs(product);
      }
      worst = std::max(worst, std::abs(x.values[m * x.n + j] - sum) / size);
    }
  }
  return worst;
}

}  // namespace

int main() {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, 0), "device");
  std::printf("%s, compute capability %d.%d, %d multiprocessors, L2 %d MiB, shared %zu\n",
              properties.name, properties.major, properties.minor, properties.multiProcessorCount,
              properties.l2CacheSize >> 20, properties.sharedMemPerBlockOptin);
  std::mt19937 random(1);
  int n_differs = 0;
  int place_differs = 0;
  int column_differs = 0;
  int mma_differs = 0;
  int outputs = 0;
  double wgmma_error = 0;
  double mma_error = 0;
  for (int trial = 0; trial < 24; ++trial) {
    const int k = (trial % 3 + 1) * 1280 - (trial % 2) * 64;
    // Wide exponent ranges make the order and the width of the sum visible.
    const float spread = static_cast<float>(trial % 4) * 3;
    std::normal_distribution<float> normal;
    std::vector<__nv_bfloat16> a16(kM * k);
    std::vector<__nv_bfloat16> b16(kMaxN * k);
    const auto draw = [&] {
      return __float2bfloat16(normal(random) * std::exp2(spread * normal(random)));
    };
    for (auto& v : a16) v = draw();
    for (auto& v : b16) v = draw();
    std::vector<float> a(a16.size());
    std::vector<float> b(b16.size());
    for (size_t i = 0; i < a.size(); ++i) a[i] = __bfloat162float(a16[i]);
    for (size_t i = 0; i < b.size(); ++i) b[i] = __bfloat162float(b16[i]);
    __nv_bfloat16* device_a = nullptr;
    __nv_bfloat16* device_b = nullptr;
    float* d = nullptr;
    check(cudaMalloc(&device_a, a16.size() * 2), "malloc");
    check(cudaMalloc(&device_b, b16.size() * 2), "malloc");
    check(cudaMalloc(&d, kM * kMaxN * 4), "malloc");
    check(cudaMemcpy(device_a, a16.data(), a16.size() * 2, cudaMemcpyHostToDevice), "copy");
    check(cudaMemcpy(device_b, b16.data(), b16.size() * 2, cudaMemcpyHostToDevice), "copy");

    const Result wide = wgmma<256>(device_a, device_b, k, true, d);
    const Result others[] = {
        wgmma<8>(device_a, device_b, k, true, d), wgmma<16>(device_a, device_b, k, true, d),
        wgmma<32>(device_a, device_b, k, true, d), wgmma<64>(device_a, device_b, k, true, d),
        wgmma<128>(device_a, device_b, k, true, d)};
    for (const Result& other : others) n_differs += differences(wide, other);
    const Result shared[] = {wgmma<8>(device_a, device_b, k, false, d),
                             wgmma<64>(device_a, device_b, k, false, d),
                             wgmma<256>(device_a, device_b, k, false, d)};
    for (const Result& other : shared) place_differs += differences(wide, other);
    // The same row of B in another column: columns 248…255 as columns 0…7.
    Result tail = wgmma<8>(device_a, device_b + 248 * k, k, true, d);
    for (int m = 0; m < kM; ++m) {
      for (int j = 0; j < 8; ++j) {
        column_differs +=
            std::memcmp(&tail.values[m * 8 + j], &wide.values[m * 256 + 248 + j], 4) != 0;
      }
    }
    check(cudaMemset(d, 0xFF, kM * 8 * 4), "poison");
    run_mma<<<1, 128>>>(device_a, device_b, k, d);
    Result mma{std::vector<float>(kM * 8), 8};
    check(cudaMemcpy(mma.values.data(), d, kM * 8 * 4, cudaMemcpyDeviceToHost), "mma");
    mma_differs += differences(wide, mma);
    outputs += kM * 8;
    wgmma_error = std::max(wgmma_error, worst_error(wide, a, b, k));
    mma_error = std::max(mma_error, worst_error(mma, a, b, k));
    check(cudaFree(device_a), "free");
    check(cudaFree(device_b), "free");
    check(cudaFree(d), "free");
  }
  std::printf("wgmma, N = 8…128 against N = 256: %d outputs differ\n", n_differs);
  std::printf("wgmma, A in shared memory against A in registers: %d outputs differ\n",
              place_differs);
  std::printf("wgmma, another column: %d outputs differ\n", column_differs);
  std::printf("mma.sync against wgmma: %d of %d outputs differ\n", mma_differs, outputs);
  std::printf("worst |error| / sum of |products|: wgmma %.3g, mma.sync %.3g (fp32 ulp 6e-8)\n",
              wgmma_error, mma_error);
  std::printf("verdict: wgmma's bits %s on N, column and operand place\n",
              n_differs + place_differs + column_differs == 0 ? "do not depend" : "DEPEND");
  return 0;
}
