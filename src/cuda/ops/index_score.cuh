#pragma once

#include "cuda/device/formats.cuh"
#include "cuda/device/reduce.cuh"
#include "cuda/device/rows.cuh"
#include "cuda/device/select.cuh"
#include "cuda/ptx/mma.cuh"

/// Scores of index entries (spec/model.md §5): score(e) = Σ_h w_h · relu(q_h ·
/// k(e)) · Di^-½.
///
/// A warp takes 16 entries at a time as the rows of A and 8 heads per
/// instruction as B. The sum over channels may run in any fixed order, so K is
/// permuted: the quad's thread t owns a quarter of the channels of "its"
/// entries, and both operands name them in the same order. A thread then reads
/// one vector of FP4 codes per entry and converts it in registers; keys never
/// pass through shared memory.
///
///     entry g (and g + 8), channels:  | t = 0 | t = 1 | t = 2 | t = 3 |   Di /
///     4 each step s of the product reads, of every quarter, channels 4s … 4s +
///     3
///
/// Queries (B) stay in registers for all entries. Heads are added pairwise
/// within a thread by ascending number, then over the quad (a fixed tree).
namespace deepinfer::cuda {

struct ScoreArgs {
  const BFloat16* queries;  // [B, Hi, Di]: rotated, quantised
  const float* weights;     // [B, Hi]: x · weights_proj · Hi^-½
  RowsView rows;
  PagesView pages;
  int heads;
  int index_dim;
  float factor;  // Di^-½
  // Which entries of a row compete: all visible ones, those of its candidate
  // blocks, or (traces) all that the slot has at the end of the step.
  const int32_t* blocks;  // [B, …] candidate blocks; null: no restriction
  int64_t blocks_stride;
  const int32_t* block_count;  // [B]
  int block_size;
  int max_places;  // no row has more
  bool is_trace;
  int first_row;  // of this tile of rows
  int tile_rows;
  uint32_t* keys;  // [tile_rows, keys_stride] order keys by place; 0: does not compete
  int64_t keys_stride;
  float* trace;  // [B, trace_stride] instead of keys
  int64_t trace_stride;
};

/// The number of places of row b: of entries, or of entries of candidate
/// blocks.
__device__ __forceinline__ int num_places(const ScoreArgs& a, int64_t b) {
  if (a.blocks != nullptr) return a.block_count[b] * a.block_size;
  const int64_t end =
      a.is_trace ? a.rows.span_first[b] + a.rows.span_size[b] : a.rows.position[b] + 1;
  return static_cast<int>(min(end / a.pages.ratio, int64_t{a.max_places}));
}

/// The entry at a place of row b; -1 if it does not compete.
__device__ __forceinline__ int entry_at(const ScoreArgs& a, int64_t b, int place) {
  if (a.blocks == nullptr) return place;
  const int entry =
      a.blocks[b * a.blocks_stride + place / a.block_size] * a.block_size + place % a.block_size;
  return entry < (a.rows.position[b] + 1) / a.pages.ratio ? entry : -1;
}

inline constexpr int kScoreThreads = 256;
inline constexpr int kScoreChunk = 512;  // places of one row that a block scores at a time
inline constexpr int kHeadTiles = 4;     // of 8 heads: more are taken 32 at a time

/// One entry's channels of thread t as bf16 pairs for the steps of the product.
template <int kDim>
struct KeyFragment {
  uint32_t pairs[kDim / 8];

  /// `codes`: the entry's [Di/2] bytes; `scales`: its [Di/32] bytes; null:
  /// zeros. Channels from index_dim on are zeros.
  __device__ __forceinline__ void load(const uint8_t* codes, const uint8_t* scales, int t,
                                       int index_dim) {
    constexpr int kQuarter = kDim / 4;                    // channels per thread
    constexpr int kPart = kQuarter < 32 ? kQuarter : 32;  // channels of one load, one scale
#pragma unroll
    for (int part = 0; part < kQuarter / kPart; ++part) {
      const int channel = t * kQuarter + part * kPart;
      uint32_t words[kPart / 8] = {};
      uint32_t scale = 0;
      if (codes != nullptr && channel < index_dim) {
        load_words(codes + channel / 2, words);
        scale = scales[channel / 32];
      }
      // e8m0 in bf16 is the exponent alone, but for 2^-127.
      const uint32_t factor = scale == 0 ? 0x00400040U : scale * 0x00800080U;
#pragma unroll
      for (int i = 0; i < kPart / 8; ++i) {
        uint32_t* to = pairs + part * (kPart / 2) + 4 * i;
        const Bf16x4 low = e2m1x4_to_bf16(words[i] & 0xFFFF);
        const Bf16x4 high = e2m1x4_to_bf16(words[i] >> 16);
        to[0] = multiply_bf16x2(low.low, factor);
        to[1] = multiply_bf16x2(low.high, factor);
        to[2] = multiply_bf16x2(high.low, factor);
        to[3] = multiply_bf16x2(high.high, factor);
      }
    }
  }

 private:
  /// Rows of codes are multiples of 16 bytes.
  static __device__ __forceinline__ void load_words(const uint8_t* from, uint32_t (&words)[1]) {
    words[0] = *reinterpret_cast<const uint32_t*>(from);
  }
  static __device__ __forceinline__ void load_words(const uint8_t* from, uint32_t (&words)[2]) {
    const uint2 raw = *reinterpret_cast<const uint2*>(from);
    words[0] = raw.x, words[1] = raw.y;
  }
  static __device__ __forceinline__ void load_words(const uint8_t* from, uint32_t (&words)[4]) {
    const uint4 raw = *reinterpret_cast<const uint4*>(from);
    words[0] = raw.x, words[1] = raw.y, words[2] = raw.z, words[3] = raw.w;
  }
};

/// Queries of up to 32 heads from `first_head` on, as B operands, and the
/// heads' weights.
template <int kDim>
struct QueryFragment {
  uint32_t pairs[kHeadTiles][kDim / 8];
  float weights[kHeadTiles][2];

  __device__ __forceinline__ void load(const ScoreArgs& a, int64_t b, int first_head) {
    const int g = lane_id() / 4;
    const int t = lane_id() % 4;
#pragma unroll
    for (int tile = 0; tile < kHeadTiles; ++tile) {
      const int head = first_head + tile * 8 + g;
#pragma unroll
      for (int i = 0; i < kDim / 8; ++i) {
        const int channel = t * (kDim / 4) + 2 * i;
        const bool inside = head < a.heads && channel < a.index_dim;
        pairs[tile][i] = inside ? *reinterpret_cast<const uint32_t*>(
                                      a.queries + (b * a.heads + head) * a.index_dim + channel)
                                : 0;
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int of_column = first_head + tile * 8 + 2 * t + i;
        weights[tile][i] = of_column < a.heads ? a.weights[b * a.heads + of_column] : 0.0F;
      }
    }
  }
};

/// Σ over the fragment's heads of w·relu(q · k) for the 16 entries of a warp:
/// entry g in .x, entry g + 8 in .y, in all threads of a quad.
template <int kDim>
__device__ __forceinline__ float2 head_sums(const QueryFragment<kDim>& query,
                                            const KeyFragment<kDim>& low,
                                            const KeyFragment<kDim>& high) {
  float2 sums = {0, 0};
#pragma unroll
  for (int tile = 0; tile < kHeadTiles; ++tile) {
    float d[4] = {};
#pragma unroll
    for (int step = 0; step < kDim / 16; ++step) {
      const uint32_t a[4] = {low.pairs[2 * step], high.pairs[2 * step], low.pairs[2 * step + 1],
                             high.pairs[2 * step + 1]};
      const uint32_t b[2] = {query.pairs[tile][2 * step], query.pairs[tile][2 * step + 1]};
      ptx::mma_16x8x16(d, a, b);
    }
    sums.x = fma_rn(query.weights[tile][0], fmaxf(d[0], 0.0F), sums.x);
    sums.x = fma_rn(query.weights[tile][1], fmaxf(d[1], 0.0F), sums.x);
    sums.y = fma_rn(query.weights[tile][0], fmaxf(d[2], 0.0F), sums.y);
    sums.y = fma_rn(query.weights[tile][1], fmaxf(d[3], 0.0F), sums.y);
  }
#pragma unroll
  for (int offset = 1; offset < 4; offset *= 2) {
    sums.x += __shfl_xor_sync(kAllLanes, sums.x, offset);
    sums.y += __shfl_xor_sync(kAllLanes, sums.y, offset);
  }
  return sums;
}

}  // namespace deepinfer::cuda
