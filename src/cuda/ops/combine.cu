#include "base/error.h"
#include "cuda/ops/ops.h"

namespace deepinfer::cuda {

void combine(const ops::CombineParams& /*params*/, Context& /*context*/) {
  fail(ErrorCode::kInternal, "the CUDA backend has no combine yet");
}

}  // namespace deepinfer::cuda
