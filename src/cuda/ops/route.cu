#include "base/error.h"
#include "cuda/ops/ops.h"

namespace deepinfer::cuda {

void route(const ops::RouteParams& /*params*/, Context& /*context*/) {
  fail(ErrorCode::kInternal, "the CUDA backend has no route yet");
}

}  // namespace deepinfer::cuda
