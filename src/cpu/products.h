#pragma once

#include <cstdint>

#include "tensor/formats.h"

/// The dot product of the cpu family, and what its kernels exchange.
///
/// y = Σ w[i]·x[i] over K elements is defined like this, for every weight kind, level, number of
/// rows and threads:
/// * w and x are exact: a stored weight is dequantised without rounding. Subnormals are zeros.
/// * K is padded with zeros to a multiple of 32 and cut in segments of kSegment elements.
/// * A segment starts with sixteen lanes of zero. Step s (elements 32s … 32s + 31): lane l adds
///   w[32s+2l+1]·x[32s+2l+1], then w[32s+2l]·x[32s+2l], each a fused multiply-add to nearest even
///   that flushes a subnormal result: what vdpbf16ps does with values that are exact in bf16.
/// * Its lanes are summed by the tree of reduce_add (l + 8, + 4, + 2, + 1), and the segments in
///   ascending order.
///
/// A block's scale is a power of two. The kernels multiply the decoded code, or the table that
/// decodes it, by the scale: the product is exact in fp32 unless it overflows, when the weight
/// itself is infinite, or is subnormal, when it is flushed to the zero as which the fused
/// multiply-add would read it. So where the scale is applied changes no bit.
namespace deepinfer::cpu {

/// Elements per step: two for each lane.
inline constexpr int64_t kStep = 32;
/// Elements per segment, for every shape: 32 steps, so that a panel of decoded weights of one
/// segment stays in the first-level cache.
inline constexpr int64_t kSegment = 1024;
inline constexpr int64_t kSegmentSteps = kSegment / kStep;
/// Up to so many rows the weights are decoded in registers, anew for each few rows; above, once per
/// tile into the cache.
inline constexpr int64_t kMaxFewRows = 4;
/// Outputs of a tile of the kernels for many rows: the rows of a block of FP8 scales.
inline constexpr int64_t kTileOutputs = 32;

constexpr int64_t steps_of(int64_t k) {
  return (k + kStep - 1) / kStep;
}

enum class WeightKind : uint8_t { kF32, kBF16, kFp8, kFp4 };

/// A weight [outputs, k] as stored, row-major; FP8 and FP4 with one scale per [scale_rows × 32]
/// block.
struct StoredWeight {
  WeightKind kind;
  int64_t k;
  const uint8_t* values;
  int64_t row_bytes;
  const uint8_t* scales;  // [ceil(outputs / scale_rows), k / 32] e8m0; null without scales
  int64_t scale_row_bytes;
  int64_t scale_rows;
};

/// Rows of inputs as the kernels read them: per step, lane by lane, the odd and then the even
/// elements in fp32 ("wide", 128 bytes), or the 32 elements in bf16 ("narrow", 64 bytes).
struct PreparedRows {
  const uint8_t* data;
  int64_t row_bytes;
  const int32_t* index;  // row i is row index[i] of data; null: row i itself
};

/// The kernels of products. `wide` functions read wide rows; a level with bf16 dot products has
/// `narrow` ones for many rows, for weights that are exact in bf16 (all kinds but kF32).
struct ProductKernels {
  /// One row of k bf16 inputs, rounded by the FP8 rule of spec/model.md §6 if asked (then k is a
  /// multiple of 32), to steps_of(k) steps.
  void (*prepare_wide)(const BFloat16* x, int64_t k, bool round_fp8, uint8_t* out);
  void (*prepare_narrow)(const BFloat16* x, int64_t k, bool round_fp8, uint8_t* out);  // or null
  /// y[r·y_stride + o] for outputs first … first + count - 1 of the weight and rows 0 … rows - 1
  /// (at most kMaxFewRows).
  void (*few)(const StoredWeight& weight, int64_t first, int64_t count, const PreparedRows& x,
              int64_t rows, float* y, int64_t y_stride);
  /// The same for any number of rows and at most kTileOutputs outputs; `scratch` holds
  /// kTileScratchBytes.
  void (*many_wide)(const StoredWeight& weight, int64_t first, int64_t count, const PreparedRows& x,
                    int64_t rows, uint8_t* scratch, float* y, int64_t y_stride);
  void (*many_narrow)(const StoredWeight& weight, int64_t first, int64_t count,
                      const PreparedRows& x, int64_t rows, uint8_t* scratch, float* y,
                      int64_t y_stride);  // or null
  /// n values rounded to bf16, nearest even.
  void (*store_bf16)(const float* x, int64_t n, BFloat16* out);
};

/// One decoded segment of a tile, wide, and room for a panel's unused outputs.
inline constexpr int64_t kTileScratchBytes = (kTileOutputs + 8) * kSegment * 4;

}  // namespace deepinfer::cpu
