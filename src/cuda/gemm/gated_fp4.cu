#include "cuda/gemm/kernel.cuh"

namespace deepinfer::cuda {

void launch_gated_fp4(const ProductParams& p, int row_tile, int num_row_tiles,
                      cudaStream_t stream) {
  if (row_tile == 128) {
    return launch_config<ProductConfig<Fp4Weight, 128, ProductMode::kGated>>(p, num_row_tiles,
                                                                             stream);
  }
  launch_tiles<Fp4Weight, ProductMode::kGated>(p, row_tile, num_row_tiles, stream);
}

}  // namespace deepinfer::cuda
