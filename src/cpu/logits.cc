#include "cpu/linear.h"
#include "cpu/operations.h"

namespace deepinfer::cpu {

void logits(const Context& context, const ops::LogitsParams& p) {
  const int64_t rows = p.streams.dim(0);
  const int64_t m = p.streams.dim(1);
  const int64_t d = p.streams.dim(2);
  const TensorView x(context.workspace.shared().take<BFloat16>(rows * d), DType::kBF16, {rows, d});
  context.parallel_for(rows, 4, [&](int64_t begin, int64_t end) {
    const auto trace = [&](const TensorView& to, int64_t b) {
      if (to.empty()) return;
      for (int64_t i = 0; i < d; ++i) to.row<float>(b)[i] = to_float(x.row<BFloat16>(b)[i]);
    };
    for (int64_t b = begin; b < end; ++b) {
      auto* row = x.row<BFloat16>(b);
      context.kernels.rows.collapse(p.streams.row<const BFloat16>(b), m, d,
                                    p.pre.row<const float>(b), row);
      trace(p.trace_collapse, b);
      rms_norm(context, row, p.norm, p.eps, row);
      trace(p.trace_norm, b);
    }
  });
  linear(context, {.weight = {.weight = p.head, .scale = {}},
                   .x = x,
                   .y = p.logits,
                   .rounding = InputRounding::kNone});
}

}  // namespace deepinfer::cpu
