#include "base/error.h"
#include "cuda/ops/ops.h"

namespace deepinfer::cuda {

void sparse_attention(const ops::SparseAttentionParams& /*params*/, Context& /*context*/) {
  fail(ErrorCode::kInternal, "the CUDA backend has no sparse_attention yet");
}

}  // namespace deepinfer::cuda
