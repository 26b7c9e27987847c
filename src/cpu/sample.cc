#include "ops/sample.h"

#include "cpu/operations.h"
#include "ops/host_sampler.h"

namespace deepinfer::cpu {

void sample(const Context& context, const ops::SampleParams& p) {
  const RowKernels& kernels = context.kernels.rows;
  const ops::SampleMath math{.exp = kernels.exp_double,
                             .gumbel_noise = kernels.gumbel_noise,
                             .largest = kernels.largest,
                             .log_sum_exp = kernels.log_sum_exp};
  const int64_t vocab = p.logits.dim(1);
  context.parallel_for(p.logits.dim(0), 1, [&](int64_t begin, int64_t end) {
    const KeepDenormals keep;
    const std::span memory(context.fresh_arena().take<ops::Candidate>(vocab),
                           static_cast<size_t>(vocab));
    for (int64_t i = begin; i < end; ++i) ops::sample_row_on_host(p, i, math, memory);
  });
}

}  // namespace deepinfer::cpu
