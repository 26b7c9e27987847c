#include "cpu/simd/portable.h"

// After the vector type that its templates take.
#include "cpu/kernels/table.h"

namespace deepinfer::cpu {

const Kernels& kernels_portable() {
  static constexpr Kernels kernels = make_kernels<portable::F32x16>("portable");
  return kernels;
}

}  // namespace deepinfer::cpu
