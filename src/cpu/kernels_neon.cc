#include "cpu/simd/neon.h"

// After the vector type that its templates take.
#include "cpu/kernels/table.h"

namespace deepinfer::cpu {

const Kernels& kernels_neon() {
  static constexpr Kernels kernels = make_kernels<neon::F32x16>("neon");
  return kernels;
}

}  // namespace deepinfer::cpu
