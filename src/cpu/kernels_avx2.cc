#include "cpu/simd/avx2.h"

// After the vector type that its templates take.
#include "cpu/kernels/table.h"

namespace deepinfer::cpu {

const Kernels& kernels_avx2() {
  static constexpr Kernels kernels = make_kernels<avx2::F32x16>("avx2");
  return kernels;
}

}  // namespace deepinfer::cpu
