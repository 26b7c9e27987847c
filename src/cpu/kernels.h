#pragma once

#include "cpu/expert_kernels.h"
#include "cpu/products.h"
#include "cpu/row_kernels.h"

namespace deepinfer::cpu {

/// The kernels of one instruction set: functions over raw pointers, written once as templates in
/// kernels/ and instantiated by kernels_LEVEL.cc. Every level's give the same bits.
struct Kernels {
  const char* level;  // "avx512bf16", "avx512", "avx2", "neon", "portable"
  ProductKernels products;
  ExpertKernels experts;
  RowKernels rows;
};

const Kernels& kernels_portable();
const Kernels& kernels_avx2();
const Kernels& kernels_avx512();
const Kernels& kernels_avx512bf16();
const Kernels& kernels_neon();

}  // namespace deepinfer::cpu
