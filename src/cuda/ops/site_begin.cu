#include "base/error.h"
#include "cuda/ops/ops.h"

namespace deepinfer::cuda {

void site_begin(const ops::SiteBeginParams& /*params*/, Context& /*context*/) {
  fail(ErrorCode::kInternal, "the CUDA backend has no site_begin yet");
}

}  // namespace deepinfer::cuda
