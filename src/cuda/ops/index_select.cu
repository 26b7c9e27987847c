#include <algorithm>
#include <limits>

#include "cuda/device/load.cuh"
#include "cuda/device/quantize_lanes.cuh"
#include "cuda/device/rope.cuh"
#include "cuda/error.h"
#include "cuda/gemm.h"
#include "cuda/ops/index_score.cuh"
#include "cuda/ops/ops.h"

// Queries and head weights by products, then for as many rows at a time as the
// workspace has room for scores of: scores (index_score.cuh) as whole-number
// keys, and one block per row that finds the candidate blocks and the best
// entries (device/select.cuh).
namespace deepinfer::cuda {
namespace {

constexpr int kQueryThreads = 256;
constexpr int kSelectThreads = 1024;
constexpr int kMaxTileRows = 4096;
constexpr int kBlocksPerMultiprocessor = 4;  // of the score kernel, which loops over its work

struct QueryArgs {
  BFloat16* queries;                  // [B, Hi, Di], in and out
  const BFloat16* projected_weights;  // [B, Hi]
  float* weights;                     // [B, Hi], out
  int heads;
  int index_dim;
  float factor;  // Hi^-½
  const int64_t* position;
  RopeView rope;
  float* trace;  // [B, Hi, Di]; may be null
};

/// A block per row: rotates and quantises the queries; a warp takes 32 channels
/// at a time.
__global__ void query_kernel(const QueryArgs a) {
  extern __shared__ Rotation rotations[];
  const int64_t b = blockIdx.x;
  fill_rotations(rotations, a.rope, a.position[b], false);
  __syncthreads();
  const int size = a.heads * a.index_dim;  // a multiple of 32
  for (int i = static_cast<int>(threadIdx.x); i < size; i += kQueryThreads) {
    BFloat16& query = a.queries[b * size + i];
    const float value =
        rotate_lanes(rotations, a.rope.pairs, a.index_dim, i % a.index_dim, to_float(query));
    const Fp4Lane quantized = quantize_fp4_index_lane(value);
    const float rounded = decode_e2m1(quantized.code) * e8m0_to_float(quantized.scale);
    query = to_bfloat16(rounded);
    if (a.trace != nullptr) a.trace[b * size + i] = rounded;
  }
  for (int h = static_cast<int>(threadIdx.x); h < a.heads; h += kQueryThreads) {
    a.weights[b * a.heads + h] = to_float(a.projected_weights[b * a.heads + h]) * a.factor;
  }
}

/// prefix[r] = number of chunks of the tile's rows before r; returns that of
/// all.
__device__ int count_chunks(const ScoreArgs& a, int* prefix, int* of_warp) {
  int running = 0;
  for (int base = 0; base < a.tile_rows; base += kScoreThreads) {
    const int r = base + static_cast<int>(threadIdx.x);
    const int places = r < a.tile_rows ? num_places(a, a.first_row + r) : 0;
    const int chunks = (places + kScoreChunk - 1) / kScoreChunk;
    int total = 0;
    const int before = block_exclusive_sum<kScoreThreads>(chunks, of_warp, total);
    if (r < a.tile_rows) prefix[r] = running + before;
    running += total;
  }
  __syncthreads();
  return running;
}

/// The row whose chunks include `item`: the last one with prefix[r] <= item.
__device__ int row_of_chunk(const int* prefix, int rows, int item) {
  int low = 0;
  int high = rows;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (prefix[middle] <= item ? low : high) = middle;
  }
  return low;
}

/// Scores 16 places from `base` on; places at or beyond `end` are not written.
template <int kDim>
__device__ __forceinline__ void score_places(const ScoreArgs& a, const QueryFragment<kDim>& query,
                                             int r, int base, int end, bool is_first,
                                             bool is_last) {
  const int64_t b = a.first_row + r;
  const int g = lane_id() / 4;
  const int t = lane_id() % 4;
  KeyFragment<kDim> keys[2];
  bool found[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int place = base + g + 8 * half;
    const int entry = place < end ? entry_at(a, b, place) : -1;
    const EntryPlace at = place_of(a.pages, a.rows.slot[b], entry);
    found[half] = at.page >= 0;
    keys[half].load(found[half] ? row_of(a.pages.key_codes, at) : nullptr,
                    found[half] ? row_of(a.pages.key_scales, at) : nullptr, t, a.index_dim);
  }
  const float2 sums = head_sums<kDim>(query, keys[0], keys[1]);
  if (t > 1) return;
  const int place = base + g + 8 * t;
  if (place >= end) return;
  float sum = t == 0 ? sums.x : sums.y;
  // Sums of more than 32 heads wait in the result's place.
  float* partial = a.is_trace ? a.trace + b * a.trace_stride + place
                              : reinterpret_cast<float*>(a.keys + r * a.keys_stride + place);
  if (!is_first) sum = *partial + sum;
  if (!is_last) {
    *partial = sum;
    return;
  }
  const float score = sum * a.factor;
  const bool competes = t == 0 ? found[0] : found[1];
  // Infinite weights can make a NaN, which no order has a place for.
  const float ordered = score == score ? score : -std::numeric_limits<float>::infinity();
  if (a.is_trace) {
    *partial = competes ? ordered : 0.0F;
  } else {
    a.keys[r * a.keys_stride + place] = competes ? order_key(ordered) : 0;
  }
}

template <int kDim>
__global__ void __launch_bounds__(kScoreThreads) score_kernel(const ScoreArgs a) {
  extern __shared__ int prefix[];  // [tile_rows]
  __shared__ int of_warp[kScoreThreads / kWarp];
  const int items = count_chunks(a, prefix, of_warp);
  for (int item = static_cast<int>(blockIdx.x); item < items; item += static_cast<int>(gridDim.x)) {
    const int r = row_of_chunk(prefix, a.tile_rows, item);
    const int64_t b = a.first_row + r;
    const int begin = (item - prefix[r]) * kScoreChunk;
    const int end = min(begin + kScoreChunk, num_places(a, b));
    for (int head = 0; head < a.heads; head += 8 * kHeadTiles) {
      QueryFragment<kDim> query;
      query.load(a, b, head);
      for (int base = begin + 16 * warp_id(); base < end; base += 16 * kScoreThreads / kWarp) {
        score_places<kDim>(a, query, r, base, end, head == 0, head + 8 * kHeadTiles >= a.heads);
      }
    }
  }
}

struct SelectArgs {
  ScoreArgs score;
  int32_t* selected;  // [B, K], out
  int64_t selected_stride;
  int num_wanted;         // K
  int32_t* num_selected;  // [B], out
  // Only the candidate source publishes blocks.
  int32_t* blocks;  // [B, max_blocks], out; may be null
  int64_t blocks_stride;
  int32_t* block_count;  // [B], out
  int max_blocks;
  int block_size;
  uint32_t* block_keys;  // [tile_rows, block_keys_stride]
  int64_t block_keys_stride;
};

/// Keeps a row's best blocks: a block's key is the largest of its entries', the
/// newest visible entry's block comes before all others (spec/model.md §5).
__device__ void publish_blocks(const SelectArgs& a, const uint32_t* keys, int n,
                               SelectMemory<kSelectThreads>& memory) {
  const int64_t b = a.score.first_row + static_cast<int>(blockIdx.x);
  const int count = (n + a.block_size - 1) / a.block_size;
  uint32_t* block_keys = a.block_keys + blockIdx.x * a.block_keys_stride;
  for (int j = static_cast<int>(threadIdx.x); j < count; j += kSelectThreads) {
    uint32_t best = 0;
    const int end = min((j + 1) * a.block_size, n);
    for (int i = j * a.block_size; i < end; ++i) best = max(best, keys[i]);
    block_keys[j] = j == count - 1 ? order_key(std::numeric_limits<float>::infinity()) : best;
  }
  __syncthreads();
  const auto key = [&](int j) { return block_keys[j]; };
  const Cut cut =
      count <= a.max_blocks
          ? Cut{0, 0}
          : find_cut<kSelectThreads>(key, count, static_cast<uint32_t>(a.max_blocks), memory);
  int32_t* blocks = a.blocks + b * a.blocks_stride;
  const int kept = take_ascending<kSelectThreads>(
      key, count, cut, [&](int j, int rank) { blocks[rank] = j; }, memory.of_warp);
  if (threadIdx.x == 0) a.block_count[b] = kept;
}

__global__ void __launch_bounds__(kSelectThreads) select_kernel(const SelectArgs a) {
  __shared__ SelectMemory<kSelectThreads> memory;
  const int64_t b = a.score.first_row + static_cast<int>(blockIdx.x);
  const uint32_t* keys = a.score.keys + blockIdx.x * a.score.keys_stride;
  const int n = num_places(a.score, b);
  if (a.blocks != nullptr) publish_blocks(a, keys, n, memory);
  const auto key = [&](int i) { return keys[i]; };
  const Cut cut = n <= a.num_wanted ? Cut{0, 0}
                                    : find_cut<kSelectThreads>(
                                          key, n, static_cast<uint32_t>(a.num_wanted), memory);
  int32_t* selected = a.selected + b * a.selected_stride;
  const int taken = take_ascending<kSelectThreads>(
      key, n, cut, [&](int place, int rank) { selected[rank] = entry_at(a.score, b, place); },
      memory.of_warp);
  if (threadIdx.x == 0) a.num_selected[b] = taken;
}

using ScoreKernel = void (*)(ScoreArgs);

ScoreKernel score_kernel_of(int64_t index_dim) {
  if (index_dim <= 32) return score_kernel<32>;
  if (index_dim <= 64) return score_kernel<64>;
  if (index_dim <= 128) return score_kernel<128>;
  DEEPINFER_CHECK(index_dim <= 256, "index_select: index keys of {} channels, at most 256",
                  index_dim);
  return score_kernel<256>;
}

/// Rotated, quantised queries and the weights of the heads.
void make_queries(const ops::IndexSelectParams& p, ScoreArgs& score, Context& context) {
  const int64_t rows = p.x.dim(0);
  const int64_t heads = p.weights_proj.dim(0);
  const int64_t size = p.wq_b.rows();
  const TensorView queries(context.workspace->take<BFloat16>(rows * size), DType::kBF16,
                           {rows, size});
  const TensorView projected(context.workspace->take<BFloat16>(rows * heads), DType::kBF16,
                             {rows, heads});
  auto* weights = context.workspace->take<float>(rows * heads);
  linear(p.wq_b, p.r, InputRounding::kFp8, queries, context);
  linear({.weight = p.weights_proj, .scale = {}}, p.x, InputRounding::kNone, projected, context);
  const QueryArgs args{.queries = queries.as<BFloat16>(),
                       .projected_weights = projected.as<const BFloat16>(),
                       .weights = weights,
                       .heads = static_cast<int>(heads),
                       .index_dim = static_cast<int>(size / heads),
                       .factor = 1.0F / std::sqrt(static_cast<float>(heads)),
                       .position = p.rows.position.as<const int64_t>(),
                       .rope = view_of(p.rope),
                       .trace = p.trace_query.empty() ? nullptr : p.trace_query.as<float>()};
  query_kernel<<<static_cast<unsigned>(rows), kQueryThreads,
                 static_cast<size_t>(args.rope.pairs) * sizeof(Rotation), context.stream>>>(args);
  DEEPINFER_CUDA_LAUNCHED("the queries of index_select");
  score.queries = args.queries;
  score.weights = weights;
  score.heads = args.heads;
  score.index_dim = args.index_dim;
  score.factor = 1.0F / std::sqrt(static_cast<float>(args.index_dim));
}

void launch_scores(const ScoreArgs& score, const Context& context) {
  const int64_t items =
      int64_t{score.tile_rows} * ((int64_t{score.max_places} + kScoreChunk - 1) / kScoreChunk);
  const int64_t resident = int64_t{context.num_multiprocessors} * kBlocksPerMultiprocessor;
  const auto blocks = static_cast<unsigned>(std::min(items, resident));
  if (blocks == 0) return;
  score_kernel_of(
      score.index_dim)<<<blocks, kScoreThreads, static_cast<size_t>(score.tile_rows) * sizeof(int),
                         context.stream>>>(score);
  DEEPINFER_CUDA_LAUNCHED("the scores of index_select");
}

/// Rows that have room for their keys at once; all results are the same for any
/// number.
int64_t rows_per_tile(int64_t rows, int64_t bytes_per_row, const Workspace& workspace) {
  constexpr int64_t kAlignment = 512;  // of the two arrays
  const int64_t room = (workspace.bytes_left() - kAlignment) / bytes_per_row;
  return std::clamp<int64_t>(room, 1, std::min<int64_t>(rows, kMaxTileRows));
}

/// Scores of all entries that the rows' slots have at the end of the step,
/// visible or not.
void trace_scores(const ops::IndexSelectParams& p, ScoreArgs score, const Context& context) {
  DEEPINFER_CUDA(cudaMemsetAsync(p.trace_scores.data(), 0,
                                 static_cast<size_t>(p.trace_scores.num_bytes()), context.stream));
  score.is_trace = true;
  score.blocks = nullptr;
  score.trace = p.trace_scores.as<float>();
  score.trace_stride = p.trace_scores.stride(0);
  score.max_places = static_cast<int>(p.trace_scores.dim(1));
  for (int64_t first = 0; first < p.x.dim(0); first += kMaxTileRows) {
    score.first_row = static_cast<int>(first);
    score.tile_rows = static_cast<int>(std::min<int64_t>(kMaxTileRows, p.x.dim(0) - first));
    launch_scores(score, context);
  }
}

}  // namespace

void index_select(const ops::IndexSelectParams& p, Context& context) {
  const int64_t rows = p.x.dim(0);
  if (rows == 0) return;
  const bool restricted = !p.restrict_to.blocks.empty();
  const bool publishes = !p.publish.blocks.empty();
  ScoreArgs score{};
  make_queries(p, score, context);
  score.rows = view_of(p.rows);
  score.pages = view_of(p.pages, p.slots);
  score.max_places = score.pages.pages_per_slot * score.pages.entries_per_page;
  if (restricted) {
    score.blocks = p.restrict_to.blocks.as<const int32_t>();
    score.blocks_stride = p.restrict_to.blocks.stride(0);
    score.block_count = p.restrict_to.count.as<const int32_t>();
    score.block_size = static_cast<int>(p.restrict_to.block_size);
    score.max_places = static_cast<int>(p.restrict_to.blocks.dim(1)) * score.block_size;
  }
  score.keys_stride = score.max_places;

  SelectArgs select{};
  select.selected = p.selected.as<int32_t>();
  select.selected_stride = p.selected.stride(0);
  select.num_wanted = static_cast<int>(p.selected.dim(1));
  select.num_selected = p.num_selected.as<int32_t>();
  if (publishes) {
    select.blocks = p.publish.blocks.as<int32_t>();
    select.blocks_stride = p.publish.blocks.stride(0);
    select.block_count = p.publish.count.as<int32_t>();
    select.max_blocks = static_cast<int>(p.publish.blocks.dim(1));
    select.block_size = static_cast<int>(p.publish.block_size);
    select.block_keys_stride = (score.max_places + select.block_size - 1) / select.block_size;
  }
  const int64_t bytes_per_row =
      (score.keys_stride + select.block_keys_stride) * static_cast<int64_t>(sizeof(uint32_t));
  const int64_t tile = rows_per_tile(rows, bytes_per_row, *context.workspace);
  score.keys = context.workspace->take<uint32_t>(tile * score.keys_stride);
  if (publishes) {
    select.block_keys = context.workspace->take<uint32_t>(tile * select.block_keys_stride);
  }
  for (int64_t first = 0; first < rows; first += tile) {
    score.first_row = static_cast<int>(first);
    score.tile_rows = static_cast<int>(std::min(tile, rows - first));
    launch_scores(score, context);
    select.score = score;
    select_kernel<<<static_cast<unsigned>(score.tile_rows), kSelectThreads, 0, context.stream>>>(
        select);
    DEEPINFER_CUDA_LAUNCHED("the selection of index_select");
  }
  if (!p.trace_scores.empty()) trace_scores(p, score, context);
}

}  // namespace deepinfer::cuda
