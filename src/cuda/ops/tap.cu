#include "base/error.h"
#include "cuda/ops/ops.h"

namespace deepinfer::cuda {

void tap(const ops::TapParams& /*params*/, Context& /*context*/) {
  fail(ErrorCode::kInternal, "the CUDA backend has no tap yet");
}

}  // namespace deepinfer::cuda
