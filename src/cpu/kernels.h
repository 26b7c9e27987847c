#pragma once

#include "cpu/products.h"

namespace deepinfer::cpu {

/// The kernels of one instruction set: functions over raw pointers, written once as templates in
/// kernels/ and instantiated by kernels_LEVEL.cc. Every level's give the same bits.
struct Kernels {
  const char* level;  // "avx512bf16", "avx512", "avx2", "neon", "portable"
  ProductKernels products;
};

const Kernels& kernels_portable();
const Kernels& kernels_avx2();
const Kernels& kernels_avx512();
const Kernels& kernels_avx512bf16();
const Kernels& kernels_neon();

}  // namespace deepinfer::cpu
