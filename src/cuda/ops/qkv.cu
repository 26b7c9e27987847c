#include "base/error.h"
#include "cuda/ops/ops.h"

namespace deepinfer::cuda {

void qkv(const ops::QkvParams& /*params*/, Context& /*context*/) {
  fail(ErrorCode::kInternal, "the CUDA backend has no qkv yet");
}

}  // namespace deepinfer::cuda
