#include "cuda/device/norm.cuh"
#include "cuda/device/quantize_lanes.cuh"
#include "cuda/device/rope.cuh"
#include "cuda/device/rows.cuh"
#include "cuda/error.h"
#include "cuda/gemm.h"
#include "cuda/ops/ops.h"

namespace deepinfer::cuda {
namespace {

constexpr int kThreads = 128;

struct CompressArgs {
  RowsView rows;
  PagesView pages;
  int num_rows;
  int head_dim;
  int index_dim;
  const BFloat16* projected;  // [B, D]: ratio 1
  const float* u;             // [B, D]: ratio 2
  const float* g;             // [B, D]: ratio 2
  float* pending;             // [S, kPendingRows, 2, D]: ratio 2
  int64_t pending_stride;
  PlainView norm;
  PlainView index_norm;
  float eps;
  RopeView rope;
  BFloat16* latents;  // [B, D]: of completing rows, zeros elsewhere
  BFloat16* keys;     // [B, Di]: their products with index_wk
  float* trace_latent;
};

/// Whether row b completes an entry and may write it.
__device__ __forceinline__ bool completes(const CompressArgs& a, int64_t b) {
  return a.rows.role[b] != static_cast<uint8_t>(ops::RowRole::kReplay) &&
         (a.rows.position[b] + 1) % a.pages.ratio == 0;
}

/// Where the slot keeps u, then g, of an even position.
__device__ __forceinline__ float* pending_at(const CompressArgs& a, int64_t slot,
                                             int64_t position) {
  return a.pending + slot * a.pending_stride + position / 2 % ops::kPendingRows * 2 * a.head_dim;
}

/// Σ softmax(g) ⊙ u over the two tokens of an entry, one channel (spec/model.md
/// §4).
__device__ __forceinline__ float pooled(float even_u, float even_g, float odd_u, float odd_g) {
  const float largest = fmaxf(even_g, odd_g);
  const float first = exp_f32(even_g - largest);
  const float second = exp_f32(odd_g - largest);
  const float sum = first + second;
  return first / sum * even_u + second / sum * odd_u;
}

/// A block per row: the latent of the entry that the row completes, before
/// rotation.
__global__ void latent_kernel(const CompressArgs a) {
  const int64_t b = blockIdx.x;
  BFloat16* latent = a.latents + b * a.head_dim;
  if (!completes(a, b)) {
    for (int c = static_cast<int>(threadIdx.x); c < a.head_dim; c += kThreads) latent[c] = {};
    return;
  }
  const float* even_u = nullptr;
  const float* even_g = nullptr;
  if (a.pages.ratio == 2) {
    // The token before is a row of this step, or else one that waits.
    const int64_t position = a.rows.position[b] - 1;
    const int32_t row = row_at(a.rows, b, position, a.num_rows);
    if (row >= 0) {
      even_u = a.u + int64_t{row} * a.head_dim;
      even_g = a.g + int64_t{row} * a.head_dim;
    } else {
      even_u = pending_at(a, a.rows.slot[b], position);
      even_g = even_u + a.head_dim;
    }
  }
  float squares = 0;
  for (int c = static_cast<int>(threadIdx.x); c < a.head_dim; c += kThreads) {
    const int64_t at = b * a.head_dim + c;
    if (a.pages.ratio == 2) {
      latent[c] = to_bfloat16(pooled(even_u[c], even_g[c], a.u[at], a.g[at]));
    } else {
      latent[c] = a.projected[at];
    }
    const float value = to_float(latent[c]);
    squares = fma_rn(value, value, squares);
  }
  const float factor = rms_factor(block_sum<kThreads>(squares), a.head_dim, a.eps);
  for (int c = static_cast<int>(threadIdx.x); c < a.head_dim; c += kThreads) {
    latent[c] = to_bfloat16(a.norm[c] * (to_float(latent[c]) * factor));
    if (a.trace_latent != nullptr) a.trace_latent[b * a.head_dim + c] = to_float(latent[c]);
  }
}

/// A block per row: rotates latent and key at the position of the entry's first
/// token, quantises and writes both. A warp takes 32 channels at a time.
__global__ void entry_kernel(const CompressArgs a) {
  extern __shared__ Rotation rotations[];
  const int64_t b = blockIdx.x;
  if (!completes(a, b)) return;
  const auto entry = static_cast<int32_t>(a.rows.position[b] / a.pages.ratio);
  const EntryPlace place = place_of(a.pages, a.rows.slot[b], entry);
  if (place.page < 0) return;  // a bug of the caller: nothing is written out of bounds
  fill_rotations(rotations, a.rope, int64_t{entry} * a.pages.ratio, false);

  const BFloat16* key = a.keys + b * a.index_dim;
  float squares = 0;
  for (int c = static_cast<int>(threadIdx.x); c < a.index_dim; c += kThreads) {
    const float value = to_float(key[c]);
    squares = fma_rn(value, value, squares);
  }
  // Its barriers make the rotations visible as well.
  const float factor = rms_factor(block_sum<kThreads>(squares), a.index_dim, a.eps);

  uint8_t* codes = row_of(a.pages.entry_codes, place);
  uint8_t* scales = row_of(a.pages.entry_scales, place);
  // head_dim is a multiple of 16: the last warp may have channels in half of
  // its lanes only.
  const int padded = (a.head_dim + kWarp - 1) / kWarp * kWarp;
  for (int c = static_cast<int>(threadIdx.x); c < padded; c += kThreads) {
    const bool inside = c < a.head_dim;
    float value = inside ? to_float(a.latents[b * a.head_dim + c]) : 0.0F;
    value = rotate_lanes(rotations, a.rope.pairs, a.head_dim, inside ? c : 0, value);
    const Fp4Lane quantized = quantize_fp4_entry_lane(value);
    const uint8_t pair = pair_codes(quantized.code);
    if (!inside) continue;
    if (c % 2 == 0) codes[c / 2] = pair;
    if (c % 16 == 0) scales[c / 16] = quantized.scale;
  }
  uint8_t* key_codes = row_of(a.pages.key_codes, place);
  uint8_t* key_scales = row_of(a.pages.key_scales, place);
  for (int c = static_cast<int>(threadIdx.x); c < a.index_dim; c += kThreads) {
    float value = round_to_bfloat16(a.index_norm[c] * (to_float(key[c]) * factor));
    value = rotate_lanes(rotations, a.rope.pairs, a.index_dim, c, value);
    const Fp4Lane quantized = quantize_fp4_index_lane(value);
    const uint8_t pair = pair_codes(quantized.code);
    if (c % 2 == 0) key_codes[c / 2] = pair;
    if (lane_id() == 0) key_scales[c / kWarp] = quantized.scale;
  }
}

/// A block per row: keeps u and g of the even positions that later steps may
/// need. Runs last: the step's first rows read what its later rows overwrite.
__global__ void pending_kernel(const CompressArgs a) {
  const int64_t b = blockIdx.x;
  const int64_t position = a.rows.position[b];
  if (position % 2 != 0 || is_overwritten(a.rows, b, 2 * ops::kPendingRows, a.num_rows)) return;
  float* waiting = pending_at(a, a.rows.slot[b], position);
  for (int c = static_cast<int>(threadIdx.x); c < a.head_dim; c += kThreads) {
    waiting[c] = a.u[b * a.head_dim + c];
    waiting[a.head_dim + c] = a.g[b * a.head_dim + c];
  }
}

/// A matrix of `rows` × `columns` in the workspace.
TensorView scratch(Context& context, DType dtype, int64_t rows, int64_t columns) {
  return {context.workspace->take_bytes(rows * columns * size_of(dtype)), dtype, {rows, columns}};
}

}  // namespace

void compress(const ops::CompressParams& p, Context& context) {
  const int64_t rows = p.x.dim(0);
  if (rows == 0) return;
  const bool is_pair = p.pages.ratio == 2;
  const int64_t head_dim = p.wkv.dim(0);
  const int64_t index_dim = p.index_wk.dim(0);
  const TensorView u = scratch(context, is_pair ? DType::kF32 : DType::kBF16, rows, head_dim);
  const TensorView g = is_pair ? scratch(context, DType::kF32, rows, head_dim) : TensorView();
  const TensorView latents = scratch(context, DType::kBF16, rows, head_dim);
  const TensorView keys = scratch(context, DType::kBF16, rows, index_dim);
  linear({.weight = p.wkv, .scale = {}}, p.x, InputRounding::kNone, u, context);
  if (is_pair) linear({.weight = p.wgate, .scale = {}}, p.x, InputRounding::kNone, g, context);

  const CompressArgs args{
      .rows = view_of(p.rows),
      .pages = view_of(p.pages, p.slots),
      .num_rows = static_cast<int>(rows),
      .head_dim = static_cast<int>(head_dim),
      .index_dim = static_cast<int>(index_dim),
      .projected = is_pair ? nullptr : u.as<const BFloat16>(),
      .u = is_pair ? u.as<const float>() : nullptr,
      .g = is_pair ? g.as<const float>() : nullptr,
      .pending = is_pair ? p.pending.as<float>() : nullptr,
      .pending_stride = is_pair ? p.pending.stride(0) : 0,
      .norm = plain(p.norm),
      .index_norm = plain(p.index_norm),
      .eps = p.eps,
      .rope = view_of(p.rope),
      .latents = latents.as<BFloat16>(),
      .keys = keys.as<BFloat16>(),
      .trace_latent = p.trace_latent.empty() ? nullptr : p.trace_latent.as<float>()};
  const auto blocks = static_cast<unsigned>(rows);
  latent_kernel<<<blocks, kThreads, 0, context.stream>>>(args);
  DEEPINFER_CUDA_LAUNCHED("the latents of compress");
  linear({.weight = p.index_wk, .scale = {}}, latents, InputRounding::kNone, keys, context);
  entry_kernel<<<blocks, kThreads, static_cast<size_t>(args.rope.pairs) * sizeof(Rotation),
                 context.stream>>>(args);
  DEEPINFER_CUDA_LAUNCHED("the entries of compress");
  if (!is_pair) return;
  pending_kernel<<<blocks, kThreads, 0, context.stream>>>(args);
  DEEPINFER_CUDA_LAUNCHED("the waiting pairs of compress");
}

}  // namespace deepinfer::cuda
