#include "cuda/gemm.h"
#include "cuda/ops/ops.h"

namespace deepinfer::cuda {

void output_projection(const ops::OutputProjectionParams& p, Context& context) {
  const int64_t rows = p.o.dim(0);
  if (rows == 0) return;
  const int64_t latent = p.wo_a.rows();
  const TensorView z(context.workspace->take<BFloat16>(rows * latent), DType::kBF16,
                     {rows, latent});
  {
    const WorkspaceScope scope(*context.workspace);
    // The heads of a group are consecutive: a row of o is `groups` rows of the product.
    const TensorView o = p.o.reshape({rows * p.groups, p.wo_a.cols()});
    grouped_linear(p.wo_a, prepare(o, InputRounding::kNone, context), p.groups, z, context);
  }
  linear(p.wo_b, z, InputRounding::kFp8, p.y, context);
}

}  // namespace deepinfer::cuda
