#include "base/error.h"
#include "cuda/ops/ops.h"

namespace deepinfer::cuda {

void site_end(const ops::SiteEndParams& /*params*/, Context& /*context*/) {
  fail(ErrorCode::kInternal, "the CUDA backend has no site_end yet");
}

}  // namespace deepinfer::cuda
