#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <cstdint>

namespace deepinfer::cpu {

/// While it lives, this thread takes subnormal fp32 operands as zeros and makes subnormal results
/// zeros of their sign, as vdpbf16ps does whatever the flags say. Operations run under it on every
/// thread (Context::parallel_for, CpuBackend); code that must keep subnormals (the quantisers of
/// spec/model.md §6 on blocks below 2^-126, sums of tiny probabilities) lives under KeepDenormals.
template <bool kFlush>
class DenormalMode {
 public:
#if defined(__x86_64__)
  DenormalMode() : saved_(_mm_getcsr()) { _mm_setcsr(kFlush ? saved_ | kBits : saved_ & ~kBits); }
  ~DenormalMode() { _mm_setcsr(saved_); }

 private:
  static constexpr uint32_t kBits = 0x8040;  // flush to zero, denormals are zero
  uint32_t saved_;
#elif defined(__aarch64__)
  DenormalMode() {
    asm volatile("mrs %0, fpcr" : "=r"(saved_));
    asm volatile("msr fpcr, %0" ::"r"(kFlush ? saved_ | kBits : saved_ & ~kBits));
  }
  ~DenormalMode() { asm volatile("msr fpcr, %0" ::"r"(saved_)); }

 private:
  static constexpr uint64_t kBits = uint64_t{1} << 24;
  uint64_t saved_ = 0;
#else
  // The portable kernels flush by themselves.
  DenormalMode() {}   // NOLINT(modernize-use-equals-default): not trivial, so not unused
  ~DenormalMode() {}  // NOLINT(modernize-use-equals-default)
#endif
 public:
  DenormalMode(const DenormalMode&) = delete;
  DenormalMode& operator=(const DenormalMode&) = delete;
};
using FlushDenormals = DenormalMode<true>;
using KeepDenormals = DenormalMode<false>;

}  // namespace deepinfer::cpu
