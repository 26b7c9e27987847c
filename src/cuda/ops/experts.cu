#include "base/error.h"
#include "cuda/ops/ops.h"

namespace deepinfer::cuda {

void experts(const ops::ExpertsParams& /*params*/, Context& /*context*/) {
  fail(ErrorCode::kInternal, "the CUDA backend has no experts yet");
}

}  // namespace deepinfer::cuda
