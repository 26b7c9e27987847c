#include "cuda/error.h"

#include "base/error.h"

namespace deepinfer::cuda {

void check_call(cudaError_t result, const char* what, const char* file, int line) {
  if (result == cudaSuccess) return;
  const ErrorCode code =
      result == cudaErrorMemoryAllocation ? ErrorCode::kResourceExhausted : ErrorCode::kInternal;
  fail(code, "{}:{}: {}: {} ({})", file, line, what, cudaGetErrorString(result),
       cudaGetErrorName(result));
}

}  // namespace deepinfer::cuda
