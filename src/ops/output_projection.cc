#include "ops/output_projection.h"

#include "ops/check.h"

namespace deepinfer::ops {

void check(const OutputProjectionParams& p) {
  check_rank("output_projection", "o", p.o, 3);
  check_rank("output_projection", "wo_a", p.wo_a.weight, 2);
  check_rank("output_projection", "y", p.y, 2);
  const int64_t rows = p.o.dim(0);
  const int64_t heads = p.o.dim(1);
  const int64_t latent = p.wo_a.rows();
  DEEPINFER_CHECK(p.groups >= 1 && heads % p.groups == 0 && latent % p.groups == 0,
                  "output_projection: {} groups of {} heads and {} rows of wo_a", p.groups, heads,
                  latent);
  // A group begins on a row of scales, so that slices of wo_a stay weights.
  DEEPINFER_CHECK(latent / p.groups % p.wo_a.scale_rows == 0,
                  "output_projection: {} rows of wo_a per group, scales of {} rows",
                  latent / p.groups, p.wo_a.scale_rows);
  check_operand("output_projection", "o", p.o, {rows, heads, p.o.dim(2)}, kActTypes);
  check_weight("output_projection", "wo_a", p.wo_a, latent, heads / p.groups * p.o.dim(2));
  check_weight("output_projection", "wo_b", p.wo_b, p.y.dim(1), latent);
  check_operand("output_projection", "y", p.y, {rows, p.y.dim(1)}, p.o.dtype());
}

}  // namespace deepinfer::ops
