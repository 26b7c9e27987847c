#pragma once

#include "base/error.h"
#include "cuda/device/load.cuh"
#include "cuda/device/math.cuh"
#include "cuda/error.h"
#include "cuda/gemm/multiply.cuh"
#include "cuda/gemm/params.h"
#include "cuda/gemm/permute.cuh"
#include "cuda/gemm/weights.cuh"
#include "cuda/ptx/async.cuh"

namespace deepinfer::cuda {

/// Sizes of a product kernel. A CTA has kGroups warpgroups; each computes kTiles tiles of 64
/// outputs for the same kN rows. Rows come through shared memory in stages of kBlocks · 64 columns,
/// weights go straight to registers, one stage ahead.
template <typename Weight_, int kN_, ProductMode kMode_>
struct ProductConfig {
  using Weight = Weight_;
  static constexpr int kN = kN_;
  static constexpr ProductMode kMode = kMode_;
  static constexpr bool kIsLarge = kN > 64;
  static constexpr int kGroups = kIsLarge ? 2 : 1;
  static constexpr int kTiles = kMode == ProductMode::kGated               ? 2
                                : kIsLarge && kMode == ProductMode::kWhole ? Weight::kLargeTiles
                                                                           : 1;
  static constexpr int kThreads = kGroups * 128;
  static constexpr int kBlocks = kN <= 32 ? 4 : 2;
  static constexpr int kStages = 4;
  /// Stages on their way while one is computed: one less than leaves a stage free would do, but
  /// then the products of the last stage would have to end before the next loads start.
  static constexpr int kAhead = 2;
  static constexpr int kBlockBytes = kN * 128;
  static constexpr int kStageBytes = kBlocks * kBlockBytes;
  static constexpr int kAlignment = 1024;  // of a swizzled tile
  static constexpr int kSharedBytes = kStages * kStageBytes + kAlignment;
  /// Different outputs of a CTA; w1 and w3 share theirs.
  static constexpr int kOutputs = kGroups * 64 * (kMode == ProductMode::kGated ? 1 : kTiles);
  /// Results pass through the stages' memory, 64 outputs per group at a time; the odd width keeps
  /// the banks apart.
  static constexpr int kStagedOutputs = kGroups * 64;
  static constexpr int kStagedStride = kStagedOutputs + 4;
  static_assert(kN * kStagedStride * 4 <= kStages * kStageBytes);
  static constexpr int kMinCtas = kN <= 16 ? 3 : kN <= 64 ? 2 : 1;
};

/// What a CTA works on.
struct CtaWork {
  const uint8_t* weight[2];  // kGated: w1, w3
  const uint8_t* scale[2];
  const uint16_t* x;
  int first_output;  // of the CTA, within the group
  int begin;         // first row: a number of x (or of the list)
  int count;         // rows, at most kN
  int group;
  int segment;
};

template <typename Config>
__device__ __forceinline__ bool find_work(const ProductParams& p, CtaWork& work) {
  work.first_output = static_cast<int>(blockIdx.x) * Config::kOutputs;
  const int row_tile = static_cast<int>(blockIdx.y);
  work.group = static_cast<int>(blockIdx.z) % p.groups;
  work.segment = static_cast<int>(blockIdx.z) / p.groups;
  work.x = p.x + work.group * p.x_group_stride;
  work.weight[0] = p.weight;
  work.scale[0] = p.scale;
  work.weight[1] = p.gate_weight;
  work.scale[1] = p.gate_scale;
  if (p.tiles == nullptr) {
    work.begin = row_tile * Config::kN;
    work.count = min(Config::kN, p.num_rows - work.begin);
    return true;
  }
  if (row_tile >= *p.num_tiles) return false;
  const RowTile tile = p.tiles[row_tile];
  work.begin = tile.begin;
  work.count = tile.count;
  const ExpertPointers expert = p.experts[tile.expert];
  if constexpr (Config::kMode == ProductMode::kGated) {
    work.weight[0] = expert.w1;
    work.scale[0] = expert.w1_scale;
    work.weight[1] = expert.w3;
    work.scale[1] = expert.w3_scale;
  } else {
    work.weight[0] = expert.w2;
    work.scale[0] = expert.w2_scale;
  }
  return true;
}

/// The thread's two rows of tile `t`, clamped to the weight: what is too much is not stored.
template <typename Config>
__device__ __forceinline__ void find_rows(const ProductParams& p, const CtaWork& work, int t,
                                          RowSource (&rows)[2]) {
  using Weight = typename Config::Weight;
  constexpr bool kGated = Config::kMode == ProductMode::kGated;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
  const int warpgroup = static_cast<int>(threadIdx.x) / 128;
  const int tile = kGated ? warpgroup : t * Config::kGroups + warpgroup;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int output = work.first_output + tile * 64 + warp * 16 + half * 8 + lane / 4;
    const int64_t row = int64_t{work.group} * p.outputs + min(output, p.outputs - 1);
    rows[half].codes =
        work.weight[kGated ? t : 0] + row * p.weight_stride + lane % 4 * Weight::kThreadBytes;
    if constexpr (Weight::kIsScaled) {
      rows[half].scales = work.scale[kGated ? t : 0] + row / p.scale_rows * p.scale_stride;
    }
  }
}

/// Starts the copy of one stage of rows; rows beyond `count` become zeros.
template <typename Config>
__device__ __forceinline__ void copy_stage(const CtaWork& work, const int64_t* row_offsets,
                                           int stage, uint8_t* memory) {
  constexpr int kChunks = Config::kBlocks * 8;  // of 16 bytes in a row
  uint8_t* target = memory + stage % Config::kStages * Config::kStageBytes;
#pragma unroll
  for (int i = 0; i < Config::kN * kChunks / Config::kThreads; ++i) {
    const int chunk = i * Config::kThreads + static_cast<int>(threadIdx.x);
    const int row = chunk / kChunks;
    const int block = chunk % kChunks / 8;
    const int place = chunk % 8;
    const bool take = row < work.count;
    const uint16_t* from =
        work.x + row_offsets[take ? row : 0] + (stage * Config::kBlocks + block) * 64 + place * 8;
    ptx::copy_async_16(target + block * Config::kBlockBytes + row * 128 + (place ^ (row % 8)) * 16,
                       from, take);
  }
}

/// The loop over columns: stages [first, last). Sums of tile t are left in acc[t].
template <typename Config>
__device__ __forceinline__ void sum_products(const ProductParams& p, const CtaWork& work,
                                             const int64_t* row_offsets, uint8_t* memory, int first,
                                             int last,
                                             float (&acc)[Config::kTiles][Config::kN / 2]) {
  using Weight = typename Config::Weight;
  constexpr int kBlocks = Config::kBlocks;
  constexpr int kTiles = Config::kTiles;
  constexpr bool kSequential = Config::kMode == ProductMode::kSequential;
  const int q = static_cast<int>(threadIdx.x) % 4;
  RowSource rows[kTiles][2];
#pragma unroll
  for (int t = 0; t < kTiles; ++t) find_rows<Config>(p, work, t, rows[t]);

  Weight raw[kBlocks][kTiles][2];
  const auto load = [&](int block, int slot, int t) {
    if (block * 64 + q * 16 < p.columns) {
      raw[slot][t][0].load(rows[t][0], block, q);
      raw[slot][t][1].load(rows[t][1], block, q);
    } else {
      raw[slot][t][0] = Weight{};
      raw[slot][t][1] = Weight{};
    }
  };
#pragma unroll
  for (int slot = 0; slot < kBlocks; ++slot) {
#pragma unroll
    for (int t = 0; t < kTiles; ++t) load(first * kBlocks + slot, slot, t);
  }
#pragma unroll
  for (int ahead = 0; ahead < Config::kAhead; ++ahead) {
    if (first + ahead < last) copy_stage<Config>(work, row_offsets, first + ahead, memory);
    ptx::copy_async_commit();
  }

  float total[kSequential ? Config::kN / 2 : 1] = {};
  for (int stage = first; stage < last; ++stage) {
    ptx::copy_async_wait<Config::kAhead - 1>();
    ptx::fence_async_shared();
    __syncthreads();
    if (stage + Config::kAhead < last) {
      copy_stage<Config>(work, row_offsets, stage + Config::kAhead, memory);
    }
    ptx::copy_async_commit();
    const uint8_t* tile = memory + stage % Config::kStages * Config::kStageBytes;
#pragma unroll
    for (int slot = 0; slot < kBlocks; ++slot) {
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        Fragments a;
        wait_multiply<1>();
        raw[slot][t][0].template expand<0>(a);
        raw[slot][t][1].template expand<1>(a);
        load((stage + 1) * kBlocks + slot, slot, t);
        multiply<Config::kN>(acc[t], a, tile + slot * Config::kBlockBytes);
      }
    }
    if constexpr (kSequential) {
      if ((stage + 1) * kBlocks % p.segment_blocks == 0 || stage + 1 == last) {
        wait_multiply<0>();
        keep_sums(acc[0]);
#pragma unroll
        for (int i = 0; i < Config::kN / 2; ++i) {
          total[i] += acc[0][i];
          acc[0][i] = 0;
        }
      }
    }
  }
  wait_multiply<0>();
#pragma unroll
  for (int t = 0; t < kTiles; ++t) keep_sums(acc[t]);
  if constexpr (kSequential) {
#pragma unroll
    for (int i = 0; i < Config::kN / 2; ++i) acc[0][i] = total[i];
  }
  __syncthreads();  // the stages' memory is free
}

/// kSplit: leaves this segment's sums; the last CTA of a tile to arrive gets the sum of all, in
/// order. False for the others.
template <typename Config>
__device__ __forceinline__ bool add_segments(const ProductParams& p, const CtaWork& work,
                                             float (&acc)[Config::kN / 2]) {
  constexpr int kCount = Config::kN / 2;
  __shared__ int arrived;
  const int64_t tile = (int64_t{work.group} * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const int64_t num_tiles = int64_t{p.groups} * gridDim.y * gridDim.x;
  const auto at = [&](int segment, int i) {
    return p.partial + ((segment * num_tiles + tile) * kCount + i) * Config::kThreads + threadIdx.x;
  };
#pragma unroll
  for (int i = 0; i < kCount; ++i) __stcg(at(work.segment, i), acc[i]);
  // The counter is raised behind the sums of all threads, and read before those of the others.
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) arrived = atomicAdd(p.counters + tile, 1);
  __syncthreads();
  if (arrived != p.num_segments - 1) return false;
  __threadfence();
#pragma unroll
  for (int i = 0; i < kCount; ++i) acc[i] = 0;
  for (int segment = 0; segment < p.num_segments; ++segment) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) acc[i] += __ldcg(at(segment, i));
  }
  if (threadIdx.x == 0) p.counters[tile] = 0;
  return true;
}

/// Lays out a warpgroup's sums as [row][output] in shared memory; `value(i, sum)` is stored.
template <typename Config, typename Value>
__device__ __forceinline__ void stage_results(float* staged, Value&& value) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int output = static_cast<int>(threadIdx.x) / 32 * 16 + lane / 4;
#pragma unroll
  for (int i = 0; i < Config::kN / 2; ++i) {
    const int row = i / 4 * 8 + lane % 4 * 2 + i % 2;
    staged[row * Config::kStagedStride + output + i % 4 / 2 * 8] = value(i, row);
  }
  __syncthreads();
}

template <typename Config>
__device__ __forceinline__ void store_results(const ProductParams& p, const CtaWork& work, int t,
                                              const float* staged) {
  constexpr int kRuns = Config::kStagedOutputs / 8;
  const int first = work.first_output + t * Config::kStagedOutputs;
  for (int i = static_cast<int>(threadIdx.x); i < work.count * kRuns; i += Config::kThreads) {
    const int row = i / kRuns;
    const int output = first + i % kRuns * 8;
    if (output >= p.outputs) continue;
    const float* from = staged + row * Config::kStagedStride + i % kRuns * 8;
    const int64_t target = p.scatter ? p.list[work.begin + row] : work.begin + row;
    const int64_t offset = target * p.y_stride + int64_t{work.group} * p.outputs + output;
    const int count = min(8, p.outputs - output);
    if (p.is_f32) {
      float* to = static_cast<float*>(p.y) + offset;
      for (int e = 0; e < count; ++e) to[e] = from[e];
    } else {
      BFloat16* to = static_cast<BFloat16*>(p.y) + offset;
      if (count == 8 && offset % 8 == 0) {
        float values[8];
#pragma unroll
        for (int e = 0; e < 8; ++e) values[e] = from[e];
        store_bf16<8>(to, values);
      } else {
        for (int e = 0; e < count; ++e) to[e] = to_bfloat16(from[e]);
      }
    }
  }
  __syncthreads();
}

/// One channel of a feed-forward network: bf16(w · (silu(a) · b)) of bf16 a and b (spec/model.md
/// §10 item 11).
__device__ __forceinline__ float gated(float a, float b, float weight, float limit) {
  a = round_to_bfloat16(a);
  b = round_to_bfloat16(b);
  if (limit > 0) {
    a = limit < a ? limit : a;
    b = clamp_magnitude(b, limit);
  }
  const float silu = a * sigmoid_f32(a);
  return round_to_bfloat16(weight * (silu * b));
}

/// kGated: 64 channels per warpgroup are a block of w2's input.
template <typename Config>
__device__ __forceinline__ void store_gated(const ProductParams& p, const CtaWork& work,
                                            const float* staged) {
  constexpr int kRuns = Config::kStagedOutputs / 16;
  for (int i = static_cast<int>(threadIdx.x); i < Config::kN * kRuns; i += Config::kThreads) {
    const int row = i / kRuns;
    const int run = i % kRuns;
    const int output = work.first_output + run * 16;
    float values[16];
#pragma unroll
    for (int e = 0; e < 16; ++e) {
      values[e] = output + e < p.outputs ? staged[row * Config::kStagedStride + run * 16 + e] : 0;
    }
    round_trip_fp8(values);
    if (row < work.count && output < p.y_stride) {
      auto* to = static_cast<uint16_t*>(p.y) + (work.begin + row) * p.y_stride + output / 64 * 64;
      store_permuted(values, run % 4, to);
    }
  }
}

template <typename Config>
__global__ void __launch_bounds__(Config::kThreads, Config::kMinCtas)
    product_kernel(const __grid_constant__ ProductParams p) {
  constexpr ProductMode kMode = Config::kMode;
  extern __shared__ uint8_t shared[];
  __shared__ int64_t row_offsets[Config::kN];
  CtaWork work;
  if (!find_work<Config>(p, work)) return;
  const auto address = reinterpret_cast<uintptr_t>(shared);
  uint8_t* memory =
      shared + (Config::kAlignment - address % Config::kAlignment) % Config::kAlignment;
  for (int i = static_cast<int>(threadIdx.x); i < work.count; i += Config::kThreads) {
    const int row = work.begin + i;
    row_offsets[i] = int64_t{p.gather > 0 ? p.list[row] / p.gather : row} * p.x_stride;
  }
  __syncthreads();

  float acc[Config::kTiles][Config::kN / 2];
#pragma unroll
  for (int t = 0; t < Config::kTiles; ++t) {
#pragma unroll
    for (int i = 0; i < Config::kN / 2; ++i) acc[t][i] = 0;
  }
  const int num_stages = (p.columns + Config::kBlocks * 64 - 1) / (Config::kBlocks * 64);
  int first = 0;
  int last = num_stages;
  if constexpr (kMode == ProductMode::kSplit) {
    const int stages = p.segment_blocks / Config::kBlocks;
    first = work.segment * stages;
    last = min(first + stages, num_stages);
  }
  sum_products<Config>(p, work, row_offsets, memory, first, last, acc);
  if constexpr (kMode == ProductMode::kSplit) {
    if (!add_segments<Config>(p, work, acc[0])) return;
  }

  auto* staged = reinterpret_cast<float*>(memory);
  if constexpr (kMode == ProductMode::kGated) {
    stage_results<Config>(staged, [&](int i, int row) {
      if (row >= work.count) return 0.0F;
      const float weight =
          p.row_weights == nullptr ? 1.0F : p.row_weights[p.list[work.begin + row]];
      return gated(acc[0][i], acc[1][i], weight, p.limit);
    });
    store_gated<Config>(p, work, staged);
  } else {
#pragma unroll
    for (int t = 0; t < Config::kTiles; ++t) {
      stage_results<Config>(staged, [&](int i, int /*row*/) { return acc[t][i]; });
      store_results<Config>(p, work, t, staged);
    }
  }
}

template <typename Config>
void launch_config(const ProductParams& p, int num_row_tiles, cudaStream_t stream) {
  // Setting the attribute again is cheap and needs no state per device.
  DEEPINFER_CUDA(cudaFuncSetAttribute(
      product_kernel<Config>, cudaFuncAttributeMaxDynamicSharedMemorySize, Config::kSharedBytes));
  const int segments = Config::kMode == ProductMode::kSplit ? p.num_segments : 1;
  const dim3 grid(static_cast<unsigned>((p.outputs + Config::kOutputs - 1) / Config::kOutputs),
                  static_cast<unsigned>(num_row_tiles), static_cast<unsigned>(p.groups * segments));
  product_kernel<Config><<<grid, Config::kThreads, Config::kSharedBytes, stream>>>(p);
  DEEPINFER_CUDA_LAUNCHED("product");
}

template <typename Weight, ProductMode kMode>
void launch_tiles(const ProductParams& p, int row_tile, int num_row_tiles, cudaStream_t stream) {
  switch (row_tile) {
    case 8:
      return launch_config<ProductConfig<Weight, 8, kMode>>(p, num_row_tiles, stream);
    case 16:
      return launch_config<ProductConfig<Weight, 16, kMode>>(p, num_row_tiles, stream);
    case 32:
      return launch_config<ProductConfig<Weight, 32, kMode>>(p, num_row_tiles, stream);
    case 64:
      return launch_config<ProductConfig<Weight, 64, kMode>>(p, num_row_tiles, stream);
    default:
      DEEPINFER_CHECK(false, "no product kernel for tiles of {} rows", row_tile);
  }
}

}  // namespace deepinfer::cuda
