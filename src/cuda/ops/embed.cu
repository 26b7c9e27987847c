#include "base/error.h"
#include "cuda/ops/ops.h"

namespace deepinfer::cuda {

void embed(const ops::EmbedParams& /*params*/, Context& /*context*/) {
  fail(ErrorCode::kInternal, "the CUDA backend has no embed yet");
}

}  // namespace deepinfer::cuda
