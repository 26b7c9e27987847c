#include <algorithm>

#include "base/error.h"
#include "cuda/gemm.h"
#include "cuda/gemm/params.h"
#include "cuda/gemm/plain.h"
#include "cuda/ops/row_ops.h"

namespace deepinfer::cuda {
namespace {

/// Up to so many rows a weight in segments is spread over the device; beyond, tiles of rows fill
/// it.
constexpr int64_t kMaxSplitRows = 512;

ProductParams params_of(const QuantView& weight, const ProductRows& x, int64_t groups,
                        const TensorView& y) {
  const int64_t rows = x.num_rows / groups;
  const int64_t outputs = weight.rows() / groups;
  DEEPINFER_CHECK(weight.cols() == x.columns && x.columns % 16 == 0 && y.dim(0) == rows &&
                      y.dim(1) == weight.rows() && y.stride(1) == 1,
                  "product of weight {} and rows of {} to {}", weight.weight.shape().to_string(),
                  x.columns, y.shape().to_string());
  ProductParams p;
  p.weight = static_cast<const uint8_t*>(weight.weight.data());
  p.weight_stride = weight.weight.stride(0) * size_of(weight.weight.dtype());
  // Kernels find their rows by offsets of 32 bits.
  DEEPINFER_CHECK(weight.rows() * p.weight_stride < int64_t{1} << 32, "product of weight {}",
                  weight.weight.shape().to_string());
  if (!weight.scale.empty()) {
    p.scale = static_cast<const uint8_t*>(weight.scale.data());
    p.scale_stride = static_cast<int32_t>(weight.scale.stride(0));
    p.scale_rows = static_cast<int32_t>(weight.scale_rows);
  }
  p.outputs = static_cast<int32_t>(outputs);
  p.columns = static_cast<int32_t>(x.columns);
  p.x = x.data;
  p.x_stride = x.stride * groups;
  p.x_group_stride = x.stride;
  p.num_rows = static_cast<int32_t>(rows);
  p.y = y.data();
  p.y_stride = y.stride(0);
  p.is_f32 = y.dtype() == DType::kF32;
  p.groups = static_cast<int32_t>(groups);
  const int64_t segment = segment_columns(weight.rows(), x.columns);
  p.segment_blocks = static_cast<int32_t>(segment / 64);
  p.num_segments = static_cast<int32_t>((x.columns + segment - 1) / segment);
  return p;
}

int smallest_tile(int64_t rows) {
  for (const int tile : {8, 16, 32}) {
    if (rows <= tile) return tile;
  }
  return 64;
}

void launch(DType dtype, const ProductParams& p, ProductMode mode, int row_tile, int row_tiles,
            cudaStream_t stream) {
  switch (dtype) {
    case DType::kE4M3:
      return launch_fp8(p, mode, row_tile, row_tiles, stream);
    case DType::kE2M1x2:
      return launch_fp4(p, mode, row_tile, row_tiles, stream);
    case DType::kBF16:
      return launch_bf16(p, mode, row_tile, row_tiles, stream);
    default:
      DEEPINFER_CHECK(false, "no product kernel for weights of {}", to_string(dtype));
  }
}

}  // namespace

void grouped_linear(const QuantView& weight, const ProductRows& x, int64_t groups,
                    const TensorView& y, Context& context) {
  const int64_t rows = x.num_rows / groups;
  if (rows == 0) return;
  ProductParams p = params_of(weight, x, groups, y);
  const auto tiles_of = [&](int tile) { return static_cast<int>((rows + tile - 1) / tile); };
  const bool is_cut = p.num_segments > 1;
  // Tiles of 128 rows read weights least often, if there are enough of them for the device.
  const int64_t outputs_per_cta = is_cut || weight.weight.dtype() == DType::kBF16 ? 128 : 256;
  const int64_t large_ctas =
      (p.outputs + outputs_per_cta - 1) / outputs_per_cta * groups * tiles_of(128);
  const bool is_large =
      rows > 64 && (is_cut ? rows > kMaxSplitRows : large_ctas >= context.num_multiprocessors);
  const int row_tile = is_large ? 128 : smallest_tile(rows);
  const int row_tiles = tiles_of(row_tile);
  ProductMode mode = ProductMode::kWhole;
  const WorkspaceScope scope(*context.workspace);
  if (is_cut && is_large) mode = ProductMode::kSequential;
  if (is_cut && !is_large) {
    mode = ProductMode::kSplit;
    const int64_t tiles = (p.outputs + 63) / 64 * groups * row_tiles;
    DEEPINFER_CHECK(tiles <= kNumCounters, "{} tiles of a product, expected at most {}", tiles,
                    kNumCounters);
    p.partial = context.workspace->take<float>(tiles * p.num_segments * row_tile * 64);
    p.counters = context.counters;
  }
  launch(weight.weight.dtype(), p, mode, row_tile, row_tiles, context.stream);
}

void linear(const QuantView& weight, const ProductRows& x, const TensorView& y, Context& context) {
  grouped_linear(weight, x, 1, y, context);
}

void linear(const QuantView& weight, const TensorView& x, InputRounding rounding,
            const TensorView& y, Context& context) {
  const WorkspaceScope scope(*context.workspace);
  // Type and shape of the weight alone decide which path it takes.
  const bool is_plain = weight.weight.dtype() == DType::kF32 || weight.cols() % 16 != 0;
  if (!is_plain) return linear(weight, prepare(x, rounding, context), y, context);
  if (rounding == InputRounding::kNone) return linear_plain(weight, x, y, context);
  const TensorView rounded(context.workspace->take<BFloat16>(x.shape().num_elements()),
                           DType::kBF16, x.shape());
  round_fp8_rows(x, rounded, context);
  linear_plain(weight, rounded, y, context);
}

}  // namespace deepinfer::cuda
