#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/pointer_tables.h"

namespace deepinfer::cuda {

/// Rows [begin, begin + count) of the list of rows of one expert.
struct RowTile {
  int32_t expert;
  int32_t begin;
  int32_t count;
};

/// What a product kernel does with its sums.
enum class ProductMode : uint8_t {
  kWhole,       // one accumulator over all columns
  kSequential,  // one per segment, added in order by the same threads
  kSplit,       // one CTA per segment; the last one to arrive adds them in order
  kGated,       // w1 and w3 of a feed-forward network: writes the input of w2
};

/// Everything a product kernel reads. Plain data, passed by value.
struct ProductParams {
  // The weight: [groups · outputs, columns] as stored, or those of the experts.
  const uint8_t* weight = nullptr;
  const uint8_t* scale = nullptr;        // nullptr for bf16
  const uint8_t* gate_weight = nullptr;  // kGated: w3 beside w1
  const uint8_t* gate_scale = nullptr;
  const ExpertPointers* experts = nullptr;  // grouped by expert: the four above are in here
  int64_t weight_stride = 0;                // bytes
  int32_t scale_stride = 0;                 // bytes
  int32_t scale_rows = 1;
  int32_t outputs = 0;  // N of one group
  int32_t columns = 0;  // K

  // Rows (ProductRows).
  const uint16_t* x = nullptr;
  int64_t x_stride = 0;
  int64_t x_group_stride = 0;
  int32_t num_rows = 0;
  const RowTile* tiles = nullptr;  // experts only, with their number on the device
  const int32_t* num_tiles = nullptr;
  const int32_t* list = nullptr;  // (row, choice) numbers, expert after expert
  int32_t gather = 0;             // > 0: row i of x is list[i] / gather
  bool scatter = false;           // row i of y is list[i]

  // Results.
  void* y = nullptr;  // [rows, …] bf16 or fp32; kGated: ProductRows
  int64_t y_stride = 0;
  bool is_f32 = false;
  const float* row_weights = nullptr;  // kGated: by list number; nullptr: 1
  float limit = 0;                     // kGated: swiglu_limit; 0: none

  // Segments.
  int32_t segment_blocks = 0;  // blocks of 64 columns
  int32_t num_segments = 1;
  int32_t groups = 1;
  float* partial = nullptr;     // kSplit: sums of every (segment, tile)
  int32_t* counters = nullptr;  // kSplit: zero, and zero again afterwards
};

/// Rows per tile: the N of the matrix instruction.
inline constexpr int kRowTiles[] = {8, 16, 32, 64, 128};

/// Launches with tiles of `row_tile` rows; grid.y is the number of row tiles.
void launch_fp8(const ProductParams& params, ProductMode mode, int row_tile, int num_row_tiles,
                cudaStream_t stream);
void launch_fp4(const ProductParams& params, ProductMode mode, int row_tile, int num_row_tiles,
                cudaStream_t stream);
void launch_bf16(const ProductParams& params, ProductMode mode, int row_tile, int num_row_tiles,
                 cudaStream_t stream);
void launch_gated_fp8(const ProductParams& params, int row_tile, int num_row_tiles,
                      cudaStream_t stream);
void launch_gated_fp4(const ProductParams& params, int row_tile, int num_row_tiles,
                      cudaStream_t stream);

}  // namespace deepinfer::cuda
