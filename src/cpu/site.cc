#include "ops/site.h"

#include "base/error.h"
#include "cpu/linear.h"
#include "cpu/operations.h"
#include "cpu/rows.h"

namespace deepinfer::cpu {

void site_begin(const Context& context, const ops::SiteBeginParams& p) {
  const int64_t rows = p.streams.dim(0);
  const int64_t m = p.streams.dim(1);
  const int64_t d = p.streams.dim(2);
  const int64_t coefficients = p.fn.dim(0);
  DEEPINFER_CHECK(m <= kMaxStreams, "site_begin: {} streams, expected at most {}", m, kMaxStreams);
  if (rows == 0) return;
  const TensorView a(context.workspace.shared().take<float>(rows * coefficients), DType::kF32,
                     {rows, coefficients});
  linear(context,
         {.weight = {.weight = p.fn, .scale = {}}, .x = p.streams.reshape({rows, m * d}), .y = a});
  context.parallel_for(rows, 2, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      const auto* streams = p.streams.row<const BFloat16>(b);
      // Before the coefficients: `pre` may be the memory of `pre_prev`.
      context.kernels.rows.collapse(streams, m, d, p.pre_prev.row<const float>(b),
                                    p.x.row<BFloat16>(b));
      rms_norm(context, p.x.row<const BFloat16>(b), p.norm, p.eps, p.x.row<BFloat16>(b));
      const float sum = context.kernels.rows.sum_squares(streams, m * d);
      context.kernels.rows.mix({.a = a.row<const float>(b),
                                .mean = sum / static_cast<float>(m * d),
                                .base = p.base.as<const float>(),
                                .scale = p.scale.as<const float>(),
                                .streams = m,
                                .eps = p.eps,
                                .hc_eps = p.hc_eps,
                                .iterations = p.sinkhorn_iterations,
                                .pre = p.pre.row<float>(b),
                                .post = p.post.row<float>(b),
                                .comb = p.comb.row<float>(b)});
    }
  });
}

void site_end(const Context& context, const ops::SiteEndParams& p) {
  const int64_t m = p.streams.dim(1);
  const int64_t d = p.streams.dim(2);
  DEEPINFER_CHECK(m <= kMaxStreams, "site_end: {} streams, expected at most {}", m, kMaxStreams);
  context.parallel_for(p.streams.dim(0), 4, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      context.kernels.rows.expand(p.y.row<const BFloat16>(b), p.post.row<const float>(b),
                                  p.comb.row<const float>(b), m, d, p.streams.row<BFloat16>(b));
    }
  });
}

void tap(const Context& context, const ops::TapParams& p) {
  const int64_t m = p.streams.dim(1);
  const int64_t d = p.streams.dim(2);
  context.parallel_for(p.streams.dim(0), 8, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      context.kernels.rows.mean_streams(p.streams.row<const BFloat16>(b), m, d,
                                        p.out.row<BFloat16>(b));
    }
  });
}

}  // namespace deepinfer::cpu
