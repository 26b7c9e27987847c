#define DEEPINFER_AVX512_LEVEL avx512bf16
#include "cpu/simd/avx512.h"

// After the vector type that its templates take.
#include "cpu/kernels/table.h"

namespace deepinfer::cpu {

const Kernels& kernels_avx512bf16() {
  static constexpr Kernels kernels = make_kernels<avx512bf16::F32x16>("avx512bf16");
  return kernels;
}

}  // namespace deepinfer::cpu
