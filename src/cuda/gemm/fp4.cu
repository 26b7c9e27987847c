#include "cuda/gemm/kernel.cuh"

namespace deepinfer::cuda {

void launch_fp4(const ProductParams& p, ProductMode mode, int row_tile, int num_row_tiles,
                cudaStream_t stream) {
  // The experts' w2: never cut in segments.
  DEEPINFER_CHECK(mode == ProductMode::kWhole, "no FP4 product kernel for a weight in segments");
  if (row_tile == 128) {
    return launch_config<ProductConfig<Fp4Weight, 128, ProductMode::kWhole>>(p, num_row_tiles,
                                                                             stream);
  }
  launch_tiles<Fp4Weight, ProductMode::kWhole>(p, row_tile, num_row_tiles, stream);
}

}  // namespace deepinfer::cuda
