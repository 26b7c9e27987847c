#include <algorithm>

#include "base/error.h"
#include "cuda/device/reduce.cuh"
#include "cuda/error.h"
#include "cuda/gemm.h"
#include "cuda/gemm/params.h"
#include "cuda/ops/ops.h"

namespace deepinfer::cuda {
namespace {

constexpr int kPlanThreads = 1024;

/// One block sorts the (row, choice) numbers by expert and cuts every expert's list in tiles. Where
/// a number stands in its list is left to chance (atomics on whole numbers): no result depends on
/// it.
__global__ void __launch_bounds__(kPlanThreads)
    plan_kernel(const int32_t* experts, int64_t stride, int choices, int num_slots, int num_experts,
                int row_tile, int32_t* list, RowTile* tiles, int32_t* num_tiles) {
  extern __shared__ int32_t memory[];
  int32_t* count = memory;               // [E]
  int32_t* next = memory + num_experts;  // [E]: where the next number of the expert goes
  __shared__ int32_t of_warp[kPlanThreads / kWarp];
  const int thread = static_cast<int>(threadIdx.x);
  for (int e = thread; e < num_experts; e += kPlanThreads) count[e] = 0;
  __syncthreads();
  const auto expert_of = [&](int slot) {
    return experts[slot / choices * stride + slot % choices];
  };
  for (int s = thread; s < num_slots; s += kPlanThreads) atomicAdd(&count[expert_of(s)], 1);
  __syncthreads();
  int32_t slots_before = 0;
  int32_t tiles_before = 0;
  for (int first = 0; first < num_experts; first += kPlanThreads) {
    const int e = first + thread;
    const int32_t size = e < num_experts ? count[e] : 0;
    const int32_t size_in_tiles = (size + row_tile - 1) / row_tile;
    int32_t all_slots = 0;
    int32_t all_tiles = 0;
    const int32_t begin =
        slots_before + block_exclusive_sum<kPlanThreads>(size, of_warp, all_slots);
    const int32_t tile =
        tiles_before + block_exclusive_sum<kPlanThreads>(size_in_tiles, of_warp, all_tiles);
    if (e < num_experts) next[e] = begin;
    for (int32_t i = 0; i < size_in_tiles; ++i) {
      tiles[tile + i] = {
          .expert = e, .begin = begin + i * row_tile, .count = min(row_tile, size - i * row_tile)};
    }
    slots_before += all_slots;
    tiles_before += all_tiles;
  }
  if (thread == 0) *num_tiles = tiles_before;
  __syncthreads();
  for (int s = thread; s < num_slots; s += kPlanThreads) {
    list[atomicAdd(&next[expert_of(s)], 1)] = s;
  }
}

/// What both products of a feed-forward network share.
ProductParams shared_params(const QuantView& weight, int64_t num_rows) {
  ProductParams p;
  p.weight = static_cast<const uint8_t*>(weight.weight.data());
  p.scale = static_cast<const uint8_t*>(weight.scale.data());
  p.weight_stride = weight.weight.stride(0);
  p.scale_stride = static_cast<int32_t>(weight.scale.stride(0));
  p.scale_rows = static_cast<int32_t>(weight.scale_rows);
  p.outputs = static_cast<int32_t>(weight.rows());
  p.columns = static_cast<int32_t>(weight.cols());
  p.num_rows = static_cast<int32_t>(num_rows);
  return p;
}

void launch_gated(DType dtype, const ProductParams& p, int row_tile, int row_tiles,
                  cudaStream_t stream) {
  if (dtype == DType::kE4M3) return launch_gated_fp8(p, row_tile, row_tiles, stream);
  DEEPINFER_CHECK(dtype == DType::kE2M1x2, "experts: weights of {}", to_string(dtype));
  launch_gated_fp4(p, row_tile, row_tiles, stream);
}

void launch_whole(DType dtype, const ProductParams& p, int row_tile, int row_tiles,
                  cudaStream_t stream) {
  if (dtype == DType::kE4M3) {
    return launch_fp8(p, ProductMode::kWhole, row_tile, row_tiles, stream);
  }
  launch_fp4(p, ProductMode::kWhole, row_tile, row_tiles, stream);
}

/// The smallest tile that holds `rows`.
int tile_of(int64_t rows) {
  for (const int tile : kRowTiles) {
    if (rows <= tile) return tile;
  }
  return 128;
}

/// Rows between the products: what w2 reads, zeros in the columns that no tile writes.
ProductRows hidden_rows(int64_t num_rows, int64_t width, Context& context) {
  const int64_t stride = padded_columns(width);
  const ProductRows hidden{.data = context.workspace->take<uint16_t>(num_rows * stride),
                           .num_rows = num_rows,
                           .columns = width,
                           .stride = stride};
  if (stride != width) {
    DEEPINFER_CUDA(cudaMemsetAsync(
        hidden.data, 0, static_cast<size_t>(num_rows * stride) * sizeof(uint16_t), context.stream));
  }
  return hidden;
}

void run_shared(const ops::ExpertsParams& p, const ProductRows& x, Context& context) {
  const WorkspaceScope scope(*context.workspace);
  const ops::ExpertWeights& shared = p.shared;
  const ProductRows hidden = hidden_rows(x.num_rows, shared.w1.rows(), context);
  const int row_tile = tile_of(x.num_rows);
  const auto row_tiles = static_cast<int>((x.num_rows + row_tile - 1) / row_tile);
  ProductParams gate = shared_params(shared.w1, x.num_rows);
  DEEPINFER_CHECK(gate.scale_rows == shared.w3.scale_rows, "experts: scales of w1 and w3 differ");
  gate.gate_weight = static_cast<const uint8_t*>(shared.w3.weight.data());
  gate.gate_scale = static_cast<const uint8_t*>(shared.w3.scale.data());
  gate.x = x.data;
  gate.x_stride = x.stride;
  gate.y = hidden.data;
  gate.y_stride = hidden.stride;
  gate.limit = p.limit;
  launch_gated(shared.w1.weight.dtype(), gate, row_tile, row_tiles, context.stream);

  ProductParams down = shared_params(shared.w2, x.num_rows);
  down.x = hidden.data;
  down.x_stride = hidden.stride;
  down.y = p.shared_rows.data();
  down.y_stride = p.shared_rows.stride(0);
  launch_whole(shared.w2.weight.dtype(), down, row_tile, row_tiles, context.stream);
}

void run_routed(const ops::ExpertsParams& p, const ProductRows& x, Context& context) {
  const WorkspaceScope scope(*context.workspace);
  const int64_t choices = p.experts.dim(1);
  const int64_t num_slots = x.num_rows * choices;
  const auto num_experts = static_cast<int64_t>(p.routed.size());
  // Twice the average keeps most experts in one tile.
  const int row_tile = tile_of(2 * num_slots / num_experts);
  const int64_t max_tiles = std::min(num_slots, num_experts) + num_slots / row_tile;
  auto* list = context.workspace->take<int32_t>(num_slots);
  auto* tiles = context.workspace->take<RowTile>(max_tiles);
  auto* num_tiles = context.workspace->take<int32_t>(1);
  plan_kernel<<<1, kPlanThreads, static_cast<size_t>(2 * num_experts) * sizeof(int32_t),
                context.stream>>>(p.experts.as<const int32_t>(), p.experts.stride(0),
                                  static_cast<int>(choices), static_cast<int>(num_slots),
                                  static_cast<int>(num_experts), row_tile, list, tiles, num_tiles);
  DEEPINFER_CUDA_LAUNCHED("experts plan");

  const ops::ExpertWeights& first = p.routed.front();
  const ProductRows hidden = hidden_rows(num_slots, first.w1.rows(), context);
  const ExpertPointers* pointers = context.tables->table(p.routed, context.stream);
  const auto grouped = [&](const QuantView& weight) {
    ProductParams params = shared_params(weight, num_slots);
    params.experts = pointers;
    params.tiles = tiles;
    params.num_tiles = num_tiles;
    params.list = list;
    return params;
  };
  ProductParams gate = grouped(first.w1);
  gate.x = x.data;
  gate.x_stride = x.stride;
  gate.gather = static_cast<int32_t>(choices);
  gate.y = hidden.data;
  gate.y_stride = hidden.stride;
  gate.row_weights = p.weights.as<const float>();
  gate.limit = p.limit;
  launch_gated(first.w1.weight.dtype(), gate, row_tile, static_cast<int>(max_tiles),
               context.stream);

  ProductParams down = grouped(first.w2);
  down.x = hidden.data;
  down.x_stride = hidden.stride;
  down.scatter = true;
  down.y = p.slot_rows.data();
  down.y_stride = p.slot_rows.stride(1);
  launch_whole(first.w2.weight.dtype(), down, row_tile, static_cast<int>(max_tiles),
               context.stream);
}

}  // namespace

void experts(const ops::ExpertsParams& p, Context& context) {
  const int64_t rows = p.x.dim(0);
  if (rows == 0) return;
  DEEPINFER_CHECK(p.weights.stride(0) == p.experts.dim(1) &&
                      p.slot_rows.stride(0) == p.slot_rows.stride(1) * p.experts.dim(1),
                  "experts: weights and slot_rows are not contiguous");
  const ProductRows x = prepare(p.x, InputRounding::kFp8, context);
  if (!p.routed.empty()) run_routed(p, x, context);
  run_shared(p, x, context);
}

}  // namespace deepinfer::cuda
