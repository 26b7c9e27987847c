#pragma once

#include <cstdint>

namespace deepinfer::cuda::ptx {

/// A warp's D[16, 8] += A[16, 16] · B[8, 16]ᵀ, bf16 in, fp32 sums. g = lane / 4, q = lane mod 4:
/// a[0], a[2] are row g, columns 2q and 2q + 8 (each with the next one); a[1], a[3] row g + 8;
/// b[0], b[1] are column g of B, rows 2q and 2q + 8; d[0], d[1] are row g, columns 2q, 2q + 1;
/// d[2], d[3] row g + 8.
__device__ __forceinline__ void mma_16x8x16(float (&d)[4], const uint32_t (&a)[4],
                                            const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

}  // namespace deepinfer::cuda::ptx
