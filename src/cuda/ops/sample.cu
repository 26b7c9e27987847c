#include "base/error.h"
#include "cuda/ops/ops.h"

namespace deepinfer::cuda {

void sample(const ops::SampleParams& /*params*/, Context& /*context*/) {
  fail(ErrorCode::kInternal, "the CUDA backend has no sample yet");
}

}  // namespace deepinfer::cuda
