#include <algorithm>
#include <cmath>

#include "cuda/device/load.cuh"
#include "cuda/device/rope.cuh"
#include "cuda/error.h"
#include "cuda/ops/attention_keys.cuh"
#include "cuda/ops/ops.h"
#include "cuda/ptx/matrix_load.cuh"
#include "cuda/ptx/mma.cuh"

// Attention of one row by one block per 16, 32 or 64 heads (spec/model.md §3, §10 item 7). K and V
// are the same rows. Per tile of 64 keys:
//
//     keys (FP8 | FP4) ──► bf16 [64, D] in shared memory ──┬─► S = Q·Kᵀ [heads, 64]: warps split
//     heads × keys
//                                                         │     maximum, p = exp(s - m), Σ p,
//                                                         bf16(p) ─► P └─► O += P·K [heads, D]:
//                                                         warps split heads × channels
//
// Shared memory: Q and keys (65 KiB each at 64 heads × 512), P, the row's list of keys. Registers:
// O, 128 per thread at 64 heads. The heads of a block are independent and every sum has an order of
// its own in which the number of heads has no part, so that number may follow the number of rows:
// few rows are spread over more blocks. Bits of a row depend on its own list alone. One block works
// through all of a row's tiles: the definition itself. Bound: matrix units for many rows.
namespace deepinfer::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
constexpr int kTile = static_cast<int>(ops::kAttentionTile);
constexpr int kKeyTiles = kTile / 8;  // of the columns of a matrix instruction
constexpr int kPad = 8;               // elements: rows that ldmatrix reads start in different banks

struct AttentionArgs {
  AttentionKeys keys;
  const BFloat16* q;  // [B, H, D]
  int64_t q_stride;
  int num_rows;  // B
  int num_heads;
  float scale;        // D^-½
  const float* sink;  // [H]
  RopeView rope;
  BFloat16* out;  // [B, H, D]
  int64_t out_stride;
  float* trace_core;  // [B, H, D]; may be null
  int list_size;      // keys that a row may have
};

/// How a block's warps divide S [kHeads, 64] and O [kHeads, kDim].
template <int kDim, int kHeads>
struct Layout {
  static constexpr int kScoreRows = kHeads / 16;             // warps along the heads of S
  static constexpr int kScoreColumns = kWarps / kScoreRows;  // along its keys
  static constexpr int kScoreTiles = kKeyTiles / kScoreColumns;
  static constexpr int kRowTiles = kHeads >= 32 ? 2 : 1;  // tiles of 16 heads of O per warp
  static constexpr int kOutRows = kHeads / (16 * kRowTiles);
  static constexpr int kOutColumns = kWarps / kOutRows;
  static constexpr int kOutTiles = kDim / 8 / kOutColumns;
  static constexpr int kStride = kDim + kPad;    // of a row of Q or keys, elements
  static constexpr int kStrideP = kTile + kPad;  // of a row of P
};

template <int kDim, int kHeads>
struct SharedMemory {
  using L = Layout<kDim, kHeads>;
  alignas(16) uint16_t q[kHeads * L::kStride];  // at the end the output
  alignas(16) uint16_t tile[kTile * L::kStride];
  alignas(16) uint16_t p[kHeads * L::kStrideP];
  float tile_max[L::kScoreColumns][kHeads];
  float tile_sum[kKeyTiles][kHeads];  // Σ p of eight keys each
  float max[2][kHeads];               // running maximum: before and after the tile
  float denominator[kHeads];
  KeyPlace keys[1];  // [list_size], then Rotation [pairs]
};

template <int kDim, int kHeads>
size_t shared_bytes(int list_size, int pairs) {
  return sizeof(SharedMemory<kDim, kHeads>) + static_cast<size_t>(list_size) * sizeof(KeyPlace) +
         static_cast<size_t>(pairs) * sizeof(Rotation);
}

/// Copies the block's heads to shared memory; heads and channels that do not exist are zeros.
template <int kDim, int kHeads>
__device__ __forceinline__ void load_queries(const AttentionArgs& a, int64_t b, int first_head,
                                             uint16_t* q) {
  constexpr int kVectors = kDim / 8;
  for (int i = static_cast<int>(threadIdx.x); i < kHeads * kVectors; i += kThreads) {
    const int head = i / kVectors;
    const int channel = i % kVectors * 8;
    uint4 values = {0, 0, 0, 0};
    if (first_head + head < a.num_heads && channel < a.keys.head_dim) {
      values = *reinterpret_cast<const uint4*>(
          a.q + b * a.q_stride + int64_t{first_head + head} * a.keys.head_dim + channel);
    }
    *reinterpret_cast<uint4*>(q + head * Layout<kDim, kHeads>::kStride + channel) = values;
  }
}

/// The warp's part of S = Q·Kᵀ, unscaled.
template <int kDim, int kHeads>
__device__ __forceinline__ void multiply_keys(const SharedMemory<kDim, kHeads>& memory,
                                              float (&s)[Layout<kDim, kHeads>::kScoreTiles][4]) {
  using L = Layout<kDim, kHeads>;
  const int lane = lane_id();
  const int row = warp_id() % L::kScoreRows * 16;
  const int column = warp_id() / L::kScoreRows * L::kScoreTiles * 8;
  // ldmatrix: of Q 16 × 16, of the keys 8 keys × 32 channels.
  uint32_t q_at = ptx::shared_address(memory.q + (row + lane % 16) * L::kStride + lane / 16 * 8);
  uint32_t key_at =
      ptx::shared_address(memory.tile + (column + lane % 8) * L::kStride + lane / 8 * 8);
#pragma unroll
  for (int n = 0; n < L::kScoreTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) s[n][i] = 0;
  }
#pragma unroll 2
  for (int k = 0; k < kDim; k += 32) {
    uint32_t q[2][4];
    ptx::load_matrices(q[0], q_at);
    ptx::load_matrices(q[1], q_at + 32);
#pragma unroll
    for (int n = 0; n < L::kScoreTiles; ++n) {
      uint32_t key[4];
      ptx::load_matrices(key, key_at + n * 8 * L::kStride * 2);
      ptx::mma_16x8x16(s[n], q[0], {key[0], key[1]});
      ptx::mma_16x8x16(s[n], q[1], {key[2], key[3]});
    }
    q_at += 64;
    key_at += 64;
  }
}

/// Maximum over the quad that holds a row of S.
__device__ __forceinline__ float quad_max(float value) {
  value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, 1));
  return fmaxf(value, __shfl_xor_sync(kAllLanes, value, 2));
}
__device__ __forceinline__ float quad_sum(float value) {
  value += __shfl_xor_sync(kAllLanes, value, 1);
  return value + __shfl_xor_sync(kAllLanes, value, 2);
}

/// The running maximum of a head with this tile.
template <int kDim, int kHeads>
__device__ __forceinline__ float new_max(const SharedMemory<kDim, kHeads>& memory, int parity,
                                         int head) {
  float value = memory.max[parity][head];
#pragma unroll
  for (int w = 0; w < Layout<kDim, kHeads>::kScoreColumns; ++w) {
    value = fmaxf(value, memory.tile_max[w][head]);
  }
  return value;
}

/// Scores of a tile to P and to the maxima and sums of the heads. `count`: keys in the tile.
/// `parity`: of the tile's number; max[parity] is the maximum before the tile. Two barriers inside.
template <int kDim, int kHeads>
__device__ __forceinline__ void make_probabilities(SharedMemory<kDim, kHeads>& memory, int count,
                                                   int parity, float scale) {
  using L = Layout<kDim, kHeads>;
  const int g = lane_id() / 4;
  const int t = lane_id() % 4;
  const int row = warp_id() % L::kScoreRows * 16 + g;
  const int part = warp_id() / L::kScoreRows;
  float s[L::kScoreTiles][4];
  multiply_keys<kDim, kHeads>(memory, s);

  float largest[2] = {-INFINITY, -INFINITY};
#pragma unroll
  for (int n = 0; n < L::kScoreTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int key = (part * L::kScoreTiles + n) * 8 + 2 * t + i % 2;
      s[n][i] = key < count ? s[n][i] * scale : -INFINITY;
      largest[i / 2] = fmaxf(largest[i / 2], s[n][i]);
    }
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float value = quad_max(largest[half]);
    if (t == 0) memory.tile_max[part][row + 8 * half] = value;
  }
  __syncthreads();
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int head = row + 8 * half;
    const float max = new_max(memory, parity, head);
#pragma unroll
    for (int n = 0; n < L::kScoreTiles; ++n) {
      const float p0 = exp_f32(s[n][2 * half] - max);
      const float p1 = exp_f32(s[n][2 * half + 1] - max);
      const int tile = part * L::kScoreTiles + n;
      *reinterpret_cast<uint32_t*>(memory.p + head * L::kStrideP + tile * 8 + 2 * t) =
          pack_bf16(p0, p1);
      const float sum = quad_sum(p0 + p1);  // of the unrounded p
      if (t == 0) memory.tile_sum[tile][head] = sum;
    }
  }
  __syncthreads();
}

/// Denominators and maxima after the tile: a thread per head.
template <int kDim, int kHeads>
__device__ __forceinline__ void advance_heads(SharedMemory<kDim, kHeads>& memory, int parity) {
  const int head = static_cast<int>(threadIdx.x);
  if (head >= kHeads) return;
  const float max = new_max(memory, parity, head);
  float sum = memory.tile_sum[0][head];
#pragma unroll
  for (int i = 1; i < kKeyTiles; ++i) sum += memory.tile_sum[i][head];
  const float rescale = exp_f32(memory.max[parity][head] - max);
  memory.denominator[head] = memory.denominator[head] * rescale + sum;
  memory.max[1 - parity][head] = max;
}

template <int kDim, int kHeads>
using OutTile = float[Layout<kDim, kHeads>::kRowTiles][Layout<kDim, kHeads>::kOutTiles][4];

/// O = O·exp(m - m') + P·K, the warp's part.
template <int kDim, int kHeads>
__device__ __forceinline__ void add_values(const SharedMemory<kDim, kHeads>& memory, int parity,
                                           OutTile<kDim, kHeads>& o) {
  using L = Layout<kDim, kHeads>;
  const int lane = lane_id();
  const int row = warp_id() % L::kOutRows * 16 * L::kRowTiles;
  const int column = warp_id() / L::kOutRows * L::kOutTiles * 8;
#pragma unroll
  for (int m = 0; m < L::kRowTiles; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int head = row + 16 * m + 8 * half + lane / 4;
      const float rescale = exp_f32(memory.max[parity][head] - new_max(memory, parity, head));
#pragma unroll
      for (int n = 0; n < L::kOutTiles; ++n) {
        o[m][n][2 * half] *= rescale;
        o[m][n][2 * half + 1] *= rescale;
      }
    }
  }
  // ldmatrix: of P 16 × 16, of the keys 32 keys × 8 channels, transposed.
  uint32_t p_at = ptx::shared_address(memory.p + (row + lane % 16) * L::kStrideP + lane / 16 * 8);
  uint32_t key_at = ptx::shared_address(memory.tile + lane * L::kStride + column);
#pragma unroll
  for (int k = 0; k < kTile; k += 32) {
    uint32_t p[L::kRowTiles][2][4];
#pragma unroll
    for (int m = 0; m < L::kRowTiles; ++m) {
      ptx::load_matrices(p[m][0], p_at + m * 16 * L::kStrideP * 2);
      ptx::load_matrices(p[m][1], p_at + m * 16 * L::kStrideP * 2 + 32);
    }
#pragma unroll
    for (int n = 0; n < L::kOutTiles; ++n) {
      uint32_t key[4];
      ptx::load_matrices_transposed(key, key_at + n * 16);
#pragma unroll
      for (int m = 0; m < L::kRowTiles; ++m) {
        ptx::mma_16x8x16(o[m][n], p[m][0], {key[0], key[1]});
        ptx::mma_16x8x16(o[m][n], p[m][1], {key[2], key[3]});
      }
    }
    p_at += 64;
    key_at += 32 * L::kStride * 2;
  }
}

/// Divides by the denominators with the sink, rotates back, and leaves bf16 in memory.q.
template <int kDim, int kHeads>
__device__ __forceinline__ void finish(const AttentionArgs& a, int64_t b, int first_head,
                                       int parity, const Rotation* rotations,
                                       SharedMemory<kDim, kHeads>& memory,
                                       const OutTile<kDim, kHeads>& o) {
  using L = Layout<kDim, kHeads>;
  const int lane = lane_id();
  const int head_dim = a.keys.head_dim;
#pragma unroll
  for (int m = 0; m < L::kRowTiles; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int head = (warp_id() % L::kOutRows * L::kRowTiles + m) * 16 + 8 * half + lane / 4;
      if (first_head + head >= a.num_heads) continue;
      const float sink = exp_f32(a.sink[first_head + head] - memory.max[parity][head]);
      const float total = memory.denominator[head] + sink;
#pragma unroll
      for (int n = 0; n < L::kOutTiles; ++n) {
        const int channel = (warp_id() / L::kOutRows * L::kOutTiles + n) * 8 + lane % 4 * 2;
        if (channel >= head_dim) continue;
        float even = round_to_bfloat16(o[m][n][2 * half] / total);
        float odd = round_to_bfloat16(o[m][n][2 * half + 1] / total);
        if (a.trace_core != nullptr) {
          float* core = a.trace_core + (b * a.num_heads + first_head + head) * head_dim + channel;
          core[0] = even;
          core[1] = odd;
        }
        const int rotates = channel - (head_dim - 2 * a.rope.pairs);
        if (rotates >= 0) {
          const Rotation rotation = rotations[rotates / 2];
          const float first = even;
          even = rotated(rotation, even, odd, false);
          odd = rotated(rotation, odd, first, true);
        }
        *reinterpret_cast<uint32_t*>(memory.q + head * L::kStride + channel) = pack_bf16(even, odd);
      }
    }
  }
}

template <int kDim, int kHeads>
__device__ __forceinline__ void store_output(const AttentionArgs& a, int64_t b, int first_head,
                                             const uint16_t* rows) {
  constexpr int kVectors = kDim / 8;
  for (int i = static_cast<int>(threadIdx.x); i < kHeads * kVectors; i += kThreads) {
    const int head = i / kVectors;
    const int channel = i % kVectors * 8;
    if (first_head + head >= a.num_heads || channel >= a.keys.head_dim) continue;
    *reinterpret_cast<uint4*>(a.out + b * a.out_stride +
                              int64_t{first_head + head} * a.keys.head_dim + channel) =
        *reinterpret_cast<const uint4*>(rows + head * Layout<kDim, kHeads>::kStride + channel);
  }
}

template <int kDim, int kHeads>
__global__ void __launch_bounds__(kThreads, 1) attention_kernel(const AttentionArgs a) {
  using L = Layout<kDim, kHeads>;
  extern __shared__ uint4 raw_memory[];
  auto& memory = *reinterpret_cast<SharedMemory<kDim, kHeads>*>(raw_memory);
  auto* rotations = reinterpret_cast<Rotation*>(memory.keys + a.list_size);
  const int64_t b = blockIdx.x;
  const int first_head = static_cast<int>(blockIdx.y) * kHeads;

  load_queries<kDim, kHeads>(a, b, first_head, memory.q);
  fill_rotations(rotations, a.rope, a.keys.rows.position[b], true);
  if (threadIdx.x < kHeads) {
    memory.max[0][threadIdx.x] = -1e30F;
    memory.denominator[threadIdx.x] = 0;
  }
  const KeyCounts counts = list_keys<kThreads>(a.keys, b, memory.keys);
  float o[L::kRowTiles][L::kOutTiles][4] = {};
  int parity = 0;
  for (int first = 0; first < counts.total; first += kTile) {
    __syncthreads();  // the list is there; the tile before has been used
    load_key_tile<kWarps, kDim, L::kStride>(memory.keys, counts, first, a.keys.head_dim,
                                            memory.tile);
    prefetch_key_tile(memory.keys, counts, first + kTile, a.keys.head_dim);
    __syncthreads();
    make_probabilities<kDim, kHeads>(memory, min(kTile, counts.total - first), parity, a.scale);
    add_values<kDim, kHeads>(memory, parity, o);
    advance_heads<kDim, kHeads>(memory, parity);
    parity = 1 - parity;
  }
  __syncthreads();
  finish<kDim, kHeads>(a, b, first_head, parity, rotations, memory, o);
  __syncthreads();
  store_output<kDim, kHeads>(a, b, first_head, memory.q);
}

template <int kDim, int kHeads>
void launch(const AttentionArgs& a, Context& context) {
  const size_t bytes = shared_bytes<kDim, kHeads>(a.list_size, a.rope.pairs);
  const auto kernel = attention_kernel<kDim, kHeads>;
  DEEPINFER_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      static_cast<int>(bytes)));
  const dim3 grid(static_cast<unsigned>(a.num_rows),
                  static_cast<unsigned>((a.num_heads + kHeads - 1) / kHeads));
  kernel<<<grid, kThreads, bytes, context.stream>>>(a);
  DEEPINFER_CUDA_LAUNCHED("sparse_attention");
}

/// The largest number of heads per block that has room in shared memory and leaves a block for
/// every multiprocessor; the results are the same for all.
template <int kDim>
void launch_for(const AttentionArgs& a, Context& context) {
  int device = 0;
  int room = 0;
  DEEPINFER_CUDA(cudaGetDevice(&device));
  DEEPINFER_CUDA(cudaDeviceGetAttribute(&room, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  const auto has_room = [&](size_t bytes) { return bytes <= static_cast<size_t>(room); };
  const auto fills = [&](int heads) {
    return a.num_heads > heads / 2 &&
           int64_t{a.num_rows} * ((a.num_heads + heads - 1) / heads) >= context.num_multiprocessors;
  };
  const int pairs = a.rope.pairs;
  if (fills(64) && has_room(shared_bytes<kDim, 64>(a.list_size, pairs))) {
    return launch<kDim, 64>(a, context);
  }
  if (fills(32) && has_room(shared_bytes<kDim, 32>(a.list_size, pairs))) {
    return launch<kDim, 32>(a, context);
  }
  const size_t least = shared_bytes<kDim, 16>(a.list_size, pairs);
  DEEPINFER_CHECK(has_room(least),
                  "sparse_attention: {} keys per row need {} bytes of shared memory of {}",
                  a.list_size, least, room);
  launch<kDim, 16>(a, context);
}

AttentionKeys keys_of(const ops::SparseAttentionParams& p) {
  AttentionKeys keys{
      .rows = view_of(p.rows),
      .pages = {},
      .num_rows = static_cast<int>(p.window_codes.dim(0)),
      .head_dim = static_cast<int>(p.q.dim(2)),
      .window = p.window,
      .window_floor = p.window_floor.empty() ? nullptr : p.window_floor.as<const int64_t>(),
      .ring_codes = p.rings.codes.as<const uint8_t>(),
      .ring_codes_stride = p.rings.codes.stride(0),
      .ring_scales = p.rings.scales.as<const uint8_t>(),
      .ring_scales_stride = p.rings.scales.stride(0),
      .ring_tags = p.rings.tags.as<const int64_t>(),
      .ring_tags_stride = p.rings.tags.stride(0),
      .ring_rows = static_cast<int32_t>(p.rings.codes.dim(1)),
      .window_codes = p.window_codes.as<const uint8_t>(),
      .window_codes_stride = p.window_codes.stride(0),
      .window_scales = p.window_scales.as<const uint8_t>(),
      .window_scales_stride = p.window_scales.stride(0),
      .selected = nullptr,
      .selected_stride = 0,
      .num_selected = nullptr};
  if (!p.selected.empty()) {
    keys.pages = view_of(p.pages, p.slots);
    keys.selected = p.selected.as<const int32_t>();
    keys.selected_stride = p.selected.stride(0);
    keys.num_selected = p.num_selected.as<const int32_t>();
  }
  return keys;
}

}  // namespace

void sparse_attention(const ops::SparseAttentionParams& p, Context& context) {
  if (p.q.dim(0) == 0) return;
  const int64_t head_dim = p.q.dim(2);
  const int64_t entries = p.selected.empty() ? 0 : p.selected.dim(1);
  reads_vectors(head_dim, {&p.q, &p.out});
  const AttentionArgs args{.keys = keys_of(p),
                           .q = p.q.as<const BFloat16>(),
                           .q_stride = p.q.stride(0),
                           .num_rows = static_cast<int>(p.q.dim(0)),
                           .num_heads = static_cast<int>(p.q.dim(1)),
                           .scale = 1.0F / std::sqrt(static_cast<float>(head_dim)),
                           .sink = p.sink.as<const float>(),
                           .rope = view_of(p.rope),
                           .out = p.out.as<BFloat16>(),
                           .out_stride = p.out.stride(0),
                           .trace_core = p.trace_core.empty() ? nullptr : p.trace_core.as<float>(),
                           .list_size = static_cast<int>(p.window + entries)};
  if (head_dim <= 64) return launch_for<64>(args, context);
  DEEPINFER_CHECK(head_dim <= 512, "sparse_attention: heads of {} channels, at most 512", head_dim);
  launch_for<512>(args, context);
}

}  // namespace deepinfer::cuda
