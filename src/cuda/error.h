#pragma once

#include <cuda_runtime.h>

namespace deepinfer::cuda {

/// Throws for a CUDA call that failed: kResourceExhausted when memory ran out, else kInternal.
/// `what` is the call or the kernel.
void check_call(cudaError_t result, const char* what, const char* file, int line);

}  // namespace deepinfer::cuda

/// Every runtime call goes through this; after a kernel launch use DEEPINFER_CUDA_LAUNCHED.
#define DEEPINFER_CUDA(call) ::deepinfer::cuda::check_call((call), #call, __FILE__, __LINE__)
/// Reports a launch that was refused. Faults inside a kernel surface at the next wait.
#define DEEPINFER_CUDA_LAUNCHED(kernel) \
  ::deepinfer::cuda::check_call(cudaGetLastError(), "launch of " kernel, __FILE__, __LINE__)
