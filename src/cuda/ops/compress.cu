#include "base/error.h"
#include "cuda/ops/ops.h"

namespace deepinfer::cuda {

void compress(const ops::CompressParams& /*params*/, Context& /*context*/) {
  fail(ErrorCode::kInternal, "the CUDA backend has no compress yet");
}

}  // namespace deepinfer::cuda
