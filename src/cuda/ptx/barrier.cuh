#pragma once

#include <cstdint>

/// Barriers in shared memory on which some threads arrive and others wait, and barriers of some of
/// a block's warps.
namespace deepinfer::cuda::ptx {

/// A phase ends when `count` threads have arrived; phases are numbered from 0.
__device__ __forceinline__ void barrier_init(uint64_t* barrier, uint32_t count) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(barrier));
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(address), "r"(count) : "memory");
}
/// What this thread wrote before is seen by those that wait. A predicate and not a branch decides
/// who arrives: branches keep matrix instructions from overlapping.
__device__ __forceinline__ void barrier_arrive(uint64_t* barrier, bool arrives = true) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(barrier));
  asm volatile(
      "{.reg .b64 state; .reg .pred p; setp.ne.b32 p, %1, 0;\n"
      "@p mbarrier.arrive.shared.b64 state, [%0];}" ::"r"(address),
      "r"(static_cast<int>(arrives))
      : "memory");
}
/// Waits until a phase of this parity has ended.
__device__ __forceinline__ void barrier_wait(uint64_t* barrier, uint32_t parity) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(barrier));
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "{.reg .pred done;\n"
      "again: mbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n"
      "@!done bra again;}" ::"r"(address),
      "r"(parity)
      : "memory");
#else
  asm volatile(
      "{.reg .pred done;\n"
      "again: mbarrier.test_wait.parity.shared.b64 done, [%0], %1;\n"
      "@!done bra again;}" ::"r"(address),
      "r"(parity)
      : "memory");
#endif
}

/// Registers of every thread of a warpgroup from here on; all of its warps call it. What some give
/// up, others may take.
template <int kCount>
__device__ __forceinline__ void give_up_registers() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
#endif
}
template <int kCount>
__device__ __forceinline__ void take_registers() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
#endif
}

/// All of the first kThreads threads of the block that call it.
template <int kThreads>
__device__ __forceinline__ void sync_threads() {
  asm volatile("bar.sync 1, %0;" ::"n"(kThreads) : "memory");
}

}  // namespace deepinfer::cuda::ptx
