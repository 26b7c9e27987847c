#include "ops/site.h"

#include "ops/check.h"

namespace deepinfer::ops {

void check(const SiteBeginParams& p) {
  check_rank("site_begin", "streams", p.streams, 3);
  const int64_t rows = p.streams.dim(0);
  const int64_t m = p.streams.dim(1);
  const int64_t d = p.streams.dim(2);
  const int64_t coefficients = 2 * m + m * m;
  check_operand("site_begin", "streams", p.streams, {rows, m, d}, kActTypes);
  check_operand("site_begin", "pre_prev", p.pre_prev, {rows, m}, DType::kF32);
  check_operand("site_begin", "fn", p.fn, {coefficients, m * d}, DType::kF32);
  check_operand("site_begin", "base", p.base, {coefficients}, DType::kF32);
  check_operand("site_begin", "scale", p.scale, {3}, DType::kF32);
  check_operand("site_begin", "norm", p.norm, {d}, kPlainTypes);
  DEEPINFER_CHECK(p.sinkhorn_iterations >= 1, "site_begin: {} Sinkhorn iterations",
                  p.sinkhorn_iterations);
  check_operand("site_begin", "x", p.x, {rows, d}, p.streams.dtype());
  check_operand("site_begin", "pre", p.pre, {rows, m}, DType::kF32);
  check_operand("site_begin", "post", p.post, {rows, m}, DType::kF32);
  check_operand("site_begin", "comb", p.comb, {rows, m, m}, DType::kF32);
}

void check(const SiteEndParams& p) {
  check_rank("site_end", "streams", p.streams, 3);
  const int64_t rows = p.streams.dim(0);
  const int64_t m = p.streams.dim(1);
  const int64_t d = p.streams.dim(2);
  check_operand("site_end", "streams", p.streams, {rows, m, d}, kActTypes);
  check_operand("site_end", "y", p.y, {rows, d}, p.streams.dtype());
  check_operand("site_end", "post", p.post, {rows, m}, DType::kF32);
  check_operand("site_end", "comb", p.comb, {rows, m, m}, DType::kF32);
}

}  // namespace deepinfer::ops
