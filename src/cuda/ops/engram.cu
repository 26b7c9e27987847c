#include "base/error.h"
#include "cuda/ops/ops.h"

namespace deepinfer::cuda {

void engram(const ops::EngramParams& /*params*/, Context& /*context*/) {
  fail(ErrorCode::kInternal, "the CUDA backend has no engram yet");
}

}  // namespace deepinfer::cuda
