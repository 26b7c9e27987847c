#pragma once

#include <cuda_runtime.h>

#include <cstdint>

/// What the benchmark itself runs on the device. Asynchronous, in stream order.
namespace deepinfer::bench {

/// Reads `bytes` (a multiple of 16, of the device or of pinned host memory) once. `sink`: 4 bytes
/// that are almost never written.
void read_once(const void* data, int64_t bytes, void* sink, int num_multiprocessors,
               cudaStream_t stream);

/// Random 32-bit words up to the end of `bytes`, rounded up to 4: word = (random & mask) + base.
void fill_bits(void* data, int64_t bytes, uint32_t mask, uint32_t base, uint32_t seed,
               cudaStream_t stream);

/// About normal numbers around 0.
void fill_normal(float* data, int64_t count, float deviation, uint32_t seed, cudaStream_t stream);

/// An empty kernel: what a launch costs at least.
void do_nothing(cudaStream_t stream);

}  // namespace deepinfer::bench
