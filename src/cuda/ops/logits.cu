#include "base/error.h"
#include "cuda/ops/ops.h"

namespace deepinfer::cuda {

void logits(const ops::LogitsParams& /*params*/, Context& /*context*/) {
  fail(ErrorCode::kInternal, "the CUDA backend has no logits yet");
}

}  // namespace deepinfer::cuda
