#include "base/error.h"
#include "cuda/ops/ops.h"

namespace deepinfer::cuda {

void window_store(const ops::WindowStoreParams& /*params*/, Context& /*context*/) {
  fail(ErrorCode::kInternal, "the CUDA backend has no window_store yet");
}

}  // namespace deepinfer::cuda
