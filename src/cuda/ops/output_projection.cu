#include "base/error.h"
#include "cuda/ops/ops.h"

namespace deepinfer::cuda {

void output_projection(const ops::OutputProjectionParams& /*params*/, Context& /*context*/) {
  fail(ErrorCode::kInternal, "the CUDA backend has no output_projection yet");
}

}  // namespace deepinfer::cuda
