#include "base/error.h"
#include "cuda/ops/ops.h"

namespace deepinfer::cuda {

void commit(const ops::CommitParams& /*params*/, Context& /*context*/) {
  fail(ErrorCode::kInternal, "the CUDA backend has no commit yet");
}

}  // namespace deepinfer::cuda
