#include "cuda/gemm/kernel.cuh"

namespace deepinfer::cuda {

void launch_gated_fp8(const ProductParams& p, int row_tile, int num_row_tiles,
                      cudaStream_t stream) {
  if (row_tile == 128) {
    return launch_config<ProductConfig<Fp8Weight, 128, ProductMode::kGated>>(p, num_row_tiles,
                                                                             stream);
  }
  launch_tiles<Fp8Weight, ProductMode::kGated>(p, row_tile, num_row_tiles, stream);
}

}  // namespace deepinfer::cuda
