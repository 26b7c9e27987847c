#include "ops/logits.h"

#include "ops/check.h"

namespace deepinfer::ops {

void check(const LogitsParams& p) {
  check_rank("logits", "streams", p.streams, 3);
  check_rank("logits", "head", p.head, 2);
  const int64_t rows = p.streams.dim(0);
  const int64_t m = p.streams.dim(1);
  const int64_t d = p.streams.dim(2);
  check_operand("logits", "streams", p.streams, {rows, m, d}, kActTypes);
  check_operand("logits", "pre", p.pre, {rows, m}, DType::kF32);
  check_operand("logits", "norm", p.norm, {d}, kPlainTypes);
  check_operand("logits", "head", p.head, {p.head.dim(0), d}, kPlainTypes);
  check_operand("logits", "logits", p.logits, {rows, p.head.dim(0)}, DType::kF32);
  check_optional("logits", "trace_collapse", p.trace_collapse, {rows, d}, DType::kF32);
  check_optional("logits", "trace_norm", p.trace_norm, {rows, d}, DType::kF32);
}

void check(const TapParams& p) {
  check_rank("tap", "streams", p.streams, 3);
  check_operand("tap", "streams", p.streams, p.streams.shape(), kActTypes);
  check_operand("tap", "out", p.out, {p.streams.dim(0), p.streams.dim(2)}, p.streams.dtype());
}

}  // namespace deepinfer::ops
