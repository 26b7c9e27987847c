#include "base/error.h"
#include "cuda/ops/ops.h"

namespace deepinfer::cuda {

void resolve_rows(const ops::ResolveRowsParams& /*params*/, Context& /*context*/) {
  fail(ErrorCode::kInternal, "the CUDA backend has no resolve_rows yet");
}

}  // namespace deepinfer::cuda
