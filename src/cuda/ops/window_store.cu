#include "cuda/device/rows.cuh"
#include "cuda/error.h"
#include "cuda/ops/ops.h"

namespace deepinfer::cuda {
namespace {

constexpr int kThreads = 128;

struct StoreArgs {
  RowsView rows;
  int64_t num_rows;
  const uint8_t* codes;  // [B, width]
  int64_t codes_stride;
  const uint8_t* scales;  // [B, num_scales]
  int64_t scales_stride;
  uint8_t* ring_codes;  // [S, R, width]
  int64_t ring_codes_stride;
  uint8_t* ring_scales;  // [S, R, num_scales]
  int64_t ring_scales_stride;
  int64_t* tags;  // [S, R]
  int64_t tags_stride;
  int32_t ring_rows;
  int32_t width;
  int32_t num_scales;
};

/// A block per row. Of the rows that share a place in the ring only the last position is written,
/// so no two blocks write the same bytes.
__global__ void window_store_kernel(const StoreArgs a) {
  const int64_t b = blockIdx.x;
  if (is_overwritten(a.rows, b, a.ring_rows, a.num_rows)) return;
  const int64_t position = a.rows.position[b];
  const int64_t slot = a.rows.slot[b];
  const int64_t row = position % a.ring_rows;
  // Rows of codes are multiples of 32 bytes.
  const auto* from = reinterpret_cast<const uint32_t*>(a.codes + b * a.codes_stride);
  auto* to = reinterpret_cast<uint32_t*>(a.ring_codes + slot * a.ring_codes_stride + row * a.width);
  for (int i = static_cast<int>(threadIdx.x); i < a.width / 4; i += kThreads) to[i] = from[i];
  const uint8_t* scales = a.scales + b * a.scales_stride;
  uint8_t* to_scales = a.ring_scales + slot * a.ring_scales_stride + row * a.num_scales;
  for (int i = static_cast<int>(threadIdx.x); i < a.num_scales; i += kThreads) {
    to_scales[i] = scales[i];
  }
  if (threadIdx.x == 0) a.tags[slot * a.tags_stride + row] = position;
}

}  // namespace

void window_store(const ops::WindowStoreParams& p, Context& context) {
  const int64_t rows = p.window_codes.dim(0);
  if (rows == 0) return;
  const StoreArgs args{.rows = view_of(p.rows),
                       .num_rows = rows,
                       .codes = p.window_codes.as<const uint8_t>(),
                       .codes_stride = p.window_codes.stride(0),
                       .scales = p.window_scales.as<const uint8_t>(),
                       .scales_stride = p.window_scales.stride(0),
                       .ring_codes = p.rings.codes.as<uint8_t>(),
                       .ring_codes_stride = p.rings.codes.stride(0),
                       .ring_scales = p.rings.scales.as<uint8_t>(),
                       .ring_scales_stride = p.rings.scales.stride(0),
                       .tags = p.rings.tags.as<int64_t>(),
                       .tags_stride = p.rings.tags.stride(0),
                       .ring_rows = static_cast<int32_t>(p.rings.codes.dim(1)),
                       .width = static_cast<int32_t>(p.window_codes.dim(1)),
                       .num_scales = static_cast<int32_t>(p.window_scales.dim(1))};
  window_store_kernel<<<static_cast<unsigned>(rows), kThreads, 0, context.stream>>>(args);
  DEEPINFER_CUDA_LAUNCHED("window_store");
}

}  // namespace deepinfer::cuda
