#include "cuda/gemm/kernel.cuh"

namespace deepinfer::cuda {

void launch_fp8(const ProductParams& p, ProductMode mode, int row_tile, int num_row_tiles,
                cudaStream_t stream) {
  if (mode == ProductMode::kSplit) {
    return launch_tiles<Fp8Weight, ProductMode::kSplit>(p, row_tile, num_row_tiles, stream);
  }
  if (mode == ProductMode::kSequential) {
    DEEPINFER_CHECK(row_tile == 128, "segments one after the other in tiles of {} rows", row_tile);
    return launch_config<ProductConfig<Fp8Weight, 128, ProductMode::kSequential>>(p, num_row_tiles,
                                                                                  stream);
  }
  if (row_tile == 128) {
    return launch_config<ProductConfig<Fp8Weight, 128, ProductMode::kWhole>>(p, num_row_tiles,
                                                                             stream);
  }
  launch_tiles<Fp8Weight, ProductMode::kWhole>(p, row_tile, num_row_tiles, stream);
}

}  // namespace deepinfer::cuda
