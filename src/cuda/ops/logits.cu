#include "cuda/gemm.h"
#include "cuda/ops/ops.h"
#include "cuda/ops/row_ops.h"

namespace deepinfer::cuda {

void logits(const ops::LogitsParams& p, Context& context) {
  const int64_t rows = p.streams.dim(0);
  if (rows == 0) return;
  const int64_t d = p.streams.dim(2);
  const TensorView x(context.workspace->take<BFloat16>(rows * d), DType::kBF16, {rows, d});
  collapse_norm(p.streams, p.pre, p.norm, p.eps, x, p.trace_collapse, p.trace_norm, context);
  linear({.weight = p.head, .scale = {}}, x, InputRounding::kNone, p.logits, context);
}

}  // namespace deepinfer::cuda
