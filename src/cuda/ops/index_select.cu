#include "base/error.h"
#include "cuda/ops/ops.h"

namespace deepinfer::cuda {

void index_select(const ops::IndexSelectParams& /*params*/, Context& /*context*/) {
  fail(ErrorCode::kInternal, "the CUDA backend has no index_select yet");
}

}  // namespace deepinfer::cuda
