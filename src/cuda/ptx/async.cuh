#pragma once

#include <cstdint>

/// Copies from global to shared memory that run beside the program, and the fences that the matrix
/// units need.
namespace deepinfer::cuda::ptx {

/// 16 bytes; zeros instead if `take` is false (the source is not read).
__device__ __forceinline__ void copy_async_16(void* shared, const void* global, bool take) {
  const auto target = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  const int bytes = take ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(target), "l"(global),
               "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void copy_async_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
/// Waits until at most `kPending` of the thread's groups are running.
template <int kPending>
__device__ __forceinline__ void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}
/// Shared memory that this thread wrote is visible to wgmma (each writer, before the barrier).
__device__ __forceinline__ void fence_async_shared() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

}  // namespace deepinfer::cuda::ptx
