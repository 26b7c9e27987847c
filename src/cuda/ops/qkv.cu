#include "cuda/gemm.h"
#include "cuda/ops/ops.h"
#include "cuda/ops/row_ops.h"

namespace deepinfer::cuda {

void qkv(const ops::QkvParams& p, Context& context) {
  const int64_t rows = p.x.dim(0);
  if (rows == 0) return;
  const int64_t queries = p.q.dim(0);
  const int64_t head_dim = p.q.dim(2);
  const TensorView low_rank(context.workspace->take<BFloat16>(queries * p.r.dim(1)), DType::kBF16,
                            {queries, p.r.dim(1)});
  const TensorView kv(context.workspace->take<BFloat16>(rows * head_dim), DType::kBF16,
                      {rows, head_dim});
  {
    const WorkspaceScope scope(*context.workspace);
    const ProductRows x = prepare(p.x, InputRounding::kFp8, context);
    linear(p.wq_a, x.first(queries), low_rank, context);
    linear(p.wkv, x, kv, context);
  }
  window_keys(kv, p.kv_norm, p.eps, p.position, p.rope, p.window_codes, p.window_scales, context);
  if (queries == 0) return;
  rms_norm_rows(low_rank, p.q_norm, p.eps, p.r, context);
  linear(p.wq_b, p.r, InputRounding::kFp8, p.q.reshape({queries, p.q.dim(1) * head_dim}), context);
  rotate_heads(p.q, p.position.slice(0, queries), p.rope, context);
}

}  // namespace deepinfer::cuda
