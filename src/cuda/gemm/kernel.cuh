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
#include "cuda/ptx/barrier.cuh"

namespace deepinfer::cuda {

/// Sizes of a product kernel. A CTA has kGroups warpgroups that compute, each kTiles tiles of 64
/// outputs for the same kN rows, and one that brings the rows to shared memory, in stages of
/// kBlocks · 64 columns. Weights go straight to registers, one stage ahead. Warpgroups wait for
/// stages and for nothing else, so one prepares operands while the other's products run.
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
  static constexpr int kThreads = kGroups * 128;  // that compute
  static constexpr int kFeeders = 128;            // that bring rows
  static constexpr int kAllThreads = kThreads + kFeeders;
  static constexpr int kBlocks = kN <= 32 ? 4 : 2;
  static constexpr int kStages = 4;
  /// Stages on their way: one more is computed, and one was just left.
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
  /// bf16 weights fill twice the registers on their way.
  static constexpr int kMinCtas = kN <= 16 && Weight::kIsScaled ? 3 : kN <= 64 ? 2 : 1;
  /// Of every thread: at launch all have the same number, then those that compute get more.
  static constexpr int kLaunchRegisters = 65536 / (kMinCtas * kAllThreads) / 8 * 8;
  static constexpr int kFeederRegisters = 40;
  static constexpr int kRegisters =
      (kLaunchRegisters * kAllThreads - kFeederRegisters * kFeeders) / kThreads / 8 * 8;
};

/// Stages between the warp that fills them and those that compute.
template <typename Config>
struct StageBarriers {
  uint64_t full[Config::kStages];   // one arrival per thread that fills
  uint64_t empty[Config::kStages];  // one per warp that computes
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
  // CTAs that run at the same time share weights and rows: bands of row tiles, in them all outputs.
  constexpr int kBand = 8;
  const auto width = static_cast<int>(gridDim.x);
  const int place = static_cast<int>(blockIdx.y) * width + static_cast<int>(blockIdx.x);
  const int band = place / (width * kBand);
  const int in_band = min(kBand, static_cast<int>(gridDim.y) - band * kBand);
  const int within = place - band * width * kBand;
  work.first_output = within / in_band * Config::kOutputs;
  const int row_tile = band * kBand + within % in_band;
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

/// The thread's two rows of tile `t` within its weight, clamped to it: what is too much is not
/// stored.
template <typename Config>
__device__ __forceinline__ void find_rows(const ProductParams& p, const CtaWork& work, int t,
                                          RowOffset (&rows)[2]) {
  using Weight = typename Config::Weight;
  constexpr bool kGated = Config::kMode == ProductMode::kGated;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
  const int warpgroup = static_cast<int>(threadIdx.x) / 128;
  const int tile = kGated ? warpgroup : t * Config::kGroups + warpgroup;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int output = work.first_output + tile * 64 + warp * 16 + half * 8 + lane / 4;
    const int row = work.group * p.outputs + min(output, p.outputs - 1);
    rows[half].codes =
        static_cast<uint32_t>(row * p.weight_stride + lane % 4 * Weight::kThreadBytes);
    if constexpr (Weight::kIsScaled) {
      rows[half].scales = static_cast<uint32_t>(row / p.scale_rows * p.scale_stride + lane % 4 / 2);
    }
  }
}

/// One thread's part of the copy of a stage of rows; rows beyond `count` become zeros.
template <typename Config>
__device__ __forceinline__ void copy_stage(const CtaWork& work, const int64_t* row_offsets,
                                           int stage, uint8_t* target) {
  constexpr int kChunks = Config::kBlocks * 8;  // of 16 bytes in a row
  const int thread = static_cast<int>(threadIdx.x) - Config::kThreads;
  const uint16_t* from = work.x + stage * Config::kBlocks * 64;
#pragma unroll 4
  for (int i = 0; i < Config::kN * kChunks / Config::kFeeders; ++i) {
    const int chunk = i * Config::kFeeders + thread;
    const int row = chunk / kChunks;
    const int block = chunk % kChunks / 8;
    const int place = chunk % 8;
    const bool take = row < work.count;
    ptx::copy_async_16(target + block * Config::kBlockBytes + row * 128 + (place ^ (row % 8)) * 16,
                       from + row_offsets[take ? row : 0] + block * 64 + place * 8, take);
  }
}

/// The warpgroup that brings stages [first, last) of the rows.
template <typename Config>
__device__ __forceinline__ void feed_stages(const CtaWork& work, const int64_t* row_offsets,
                                            uint8_t* memory, StageBarriers<Config>& barriers,
                                            int first, int last) {
  constexpr int kStages = Config::kStages;
  const int count = last - first;
  for (int i = 0; i < count; ++i) {
    if (i >= kStages) {
      ptx::barrier_wait(&barriers.empty[i % kStages], static_cast<uint32_t>(i / kStages - 1) & 1);
    }
    copy_stage<Config>(work, row_offsets, first + i, memory + i % kStages * Config::kStageBytes);
    ptx::copy_async_commit();
    if (i < Config::kAhead) continue;
    ptx::copy_async_wait<Config::kAhead>();
    ptx::fence_async_shared();
    ptx::barrier_arrive(&barriers.full[(i - Config::kAhead) % kStages]);
  }
  ptx::copy_async_wait<0>();
  ptx::fence_async_shared();
  for (int i = max(0, count - Config::kAhead); i < count; ++i) {
    ptx::barrier_arrive(&barriers.full[i % kStages]);
  }
}

/// The loop over columns: stages [first, last). Sums of tile t are left in acc[t].
template <typename Config>
__device__ __forceinline__ void sum_products(const ProductParams& p, const CtaWork& work,
                                             const uint8_t* memory, StageBarriers<Config>& barriers,
                                             int first, int last,
                                             float (&acc)[Config::kTiles][Config::kN / 2]) {
  using Weight = typename Config::Weight;
  constexpr int kBlocks = Config::kBlocks;
  constexpr int kTiles = Config::kTiles;
  constexpr int kStages = Config::kStages;
  constexpr bool kGated = Config::kMode == ProductMode::kGated;
  constexpr bool kSequential = Config::kMode == ProductMode::kSequential;
  RowOffset rows[kTiles][2];
#pragma unroll
  for (int t = 0; t < kTiles; ++t) find_rows<Config>(p, work, t, rows[t]);
  BlockSource source[kGated ? 2 : 1];
#pragma unroll
  for (int w = 0; w < (kGated ? 2 : 1); ++w) {
    source[w].codes = work.weight[w] + first * kBlocks * Weight::kBlockBytes;
    if constexpr (Weight::kIsScaled) {
      source[w].scales = work.scale[w] + first * kBlocks * Weight::kBlockScaleBytes;
    }
  }
  // The thread's columns of a stage lie within the weight up to this block. Beyond, the rows are
  // zeros, so that any finite code will do: those of the stage before.
  int blocks_left =
      (p.columns - static_cast<int>(threadIdx.x) % 4 * 16 + 63) / 64 - first * kBlocks;

  Weight raw[kBlocks][kTiles][2];
#pragma unroll
  for (int slot = 0; slot < kBlocks; ++slot) {
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      raw[slot][t][0].load(source[kGated ? t : 0], rows[t][0], slot, slot < blocks_left);
      raw[slot][t][1].load(source[kGated ? t : 0], rows[t][1], slot, slot < blocks_left);
    }
  }

  float total[kSequential ? Config::kN / 2 : 1] = {};
  for (int stage = first; stage < last; ++stage) {
    const int i = stage - first;
#pragma unroll
    for (int w = 0; w < (kGated ? 2 : 1); ++w) {
      source[w].codes += kBlocks * Weight::kBlockBytes;
      if constexpr (Weight::kIsScaled) source[w].scales += kBlocks * Weight::kBlockScaleBytes;
    }
    blocks_left -= kBlocks;
    const uint8_t* tile = memory + i % kStages * Config::kStageBytes;
    ptx::barrier_wait(&barriers.full[i % kStages], static_cast<uint32_t>(i / kStages) & 1);
#pragma unroll
    for (int slot = 0; slot < kBlocks; ++slot) {
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        Fragments a;
        wait_multiply<1>();
        if (slot * kTiles + t == 1) {
          // All products of the stage before have ended.
          __syncwarp();
          ptx::barrier_arrive(&barriers.empty[(i + kStages - 1) % kStages],
                              i > 0 && threadIdx.x % 32 == 0);
        }
        raw[slot][t][0].template expand<0>(a);
        raw[slot][t][1].template expand<1>(a);
        raw[slot][t][0].load(source[kGated ? t : 0], rows[t][0], slot, slot < blocks_left);
        raw[slot][t][1].load(source[kGated ? t : 0], rows[t][1], slot, slot < blocks_left);
        multiply<Config::kN>(acc[t], a, tile + slot * Config::kBlockBytes);
      }
    }
    if constexpr (kSequential) {
      if ((stage + 1) * kBlocks % p.segment_blocks == 0 || stage + 1 == last) {
        wait_multiply<0>();
        keep_sums(acc[0]);
#pragma unroll
        for (int j = 0; j < Config::kN / 2; ++j) {
          total[j] += acc[0][j];
          acc[0][j] = 0;
        }
      }
    }
  }
  wait_multiply<0>();
#pragma unroll
  for (int t = 0; t < kTiles; ++t) keep_sums(acc[t]);
  if constexpr (kSequential) {
#pragma unroll
    for (int j = 0; j < Config::kN / 2; ++j) acc[0][j] = total[j];
  }
  ptx::sync_threads<Config::kThreads>();  // the stages' memory is free
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
  ptx::sync_threads<Config::kThreads>();
  if (threadIdx.x == 0) arrived = atomicAdd(p.counters + tile, 1);
  ptx::sync_threads<Config::kThreads>();
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
  ptx::sync_threads<Config::kThreads>();
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
  ptx::sync_threads<Config::kThreads>();
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
__global__ void __launch_bounds__(Config::kAllThreads, Config::kMinCtas)
    product_kernel(const __grid_constant__ ProductParams p) {
  constexpr ProductMode kMode = Config::kMode;
  extern __shared__ uint8_t shared[];
  __shared__ int64_t row_offsets[Config::kN];
  __shared__ StageBarriers<Config> barriers;
  CtaWork work;
  if (!find_work<Config>(p, work)) return;
  const auto address = reinterpret_cast<uintptr_t>(shared);
  uint8_t* memory =
      shared + (Config::kAlignment - address % Config::kAlignment) % Config::kAlignment;
  for (int i = static_cast<int>(threadIdx.x); i < work.count; i += Config::kAllThreads) {
    const int row = work.begin + i;
    row_offsets[i] = int64_t{p.gather > 0 ? p.list[row] / p.gather : row} * p.x_stride;
  }
  if (threadIdx.x == 0) {
    for (int i = 0; i < Config::kStages; ++i) {
      ptx::barrier_init(&barriers.full[i], Config::kFeeders);
      ptx::barrier_init(&barriers.empty[i], Config::kThreads / 32);
    }
  }
  __syncthreads();
  const int num_stages = (p.columns + Config::kBlocks * 64 - 1) / (Config::kBlocks * 64);
  int first = 0;
  int last = num_stages;
  if constexpr (kMode == ProductMode::kSplit) {
    const int stages = p.segment_blocks / Config::kBlocks;
    first = work.segment * stages;
    last = min(first + stages, num_stages);
  }
  if (threadIdx.x >= Config::kThreads) {
    ptx::give_up_registers<Config::kFeederRegisters>();
    feed_stages<Config>(work, row_offsets, memory, barriers, first, last);
    return;
  }
  ptx::take_registers<Config::kRegisters>();

  float acc[Config::kTiles][Config::kN / 2];
#pragma unroll
  for (int t = 0; t < Config::kTiles; ++t) {
#pragma unroll
    for (int i = 0; i < Config::kN / 2; ++i) acc[t][i] = 0;
  }
  sum_products<Config>(p, work, memory, barriers, first, last, acc);
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
  product_kernel<Config><<<grid, Config::kAllThreads, Config::kSharedBytes, stream>>>(p);
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
