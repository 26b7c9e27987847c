#include "ops/qkv.h"

#include "ops/check.h"

namespace deepinfer::ops {

void check(const QkvParams& p) {
  check_rank("qkv", "x", p.x, 2);
  check_rank("qkv", "q", p.q, 3);
  check_rank("qkv", "r", p.r, 2);
  check_rank("qkv", "inv_freq", p.rope.inv_freq, 1);
  const int64_t rows = p.x.dim(0);
  const int64_t d = p.x.dim(1);
  const int64_t heads = p.q.dim(1);
  const int64_t head_dim = p.q.dim(2);
  const int64_t rank = p.r.dim(1);
  const int64_t queries = p.q.dim(0);
  constexpr int64_t kBlock = 32;  // channels per scale of a window key
  DEEPINFER_CHECK(head_dim % kBlock == 0 && 2 * p.rope.inv_freq.dim(0) <= head_dim,
                  "qkv: head_dim {} with {} rotated pairs", head_dim, p.rope.inv_freq.dim(0));
  check_operand("qkv", "x", p.x, {rows, d}, kActTypes);
  DEEPINFER_CHECK(queries <= rows, "qkv: queries of {} rows, expected at most {}", queries, rows);
  check_operand("qkv", "position", p.position, {rows}, DType::kI64);
  check_weight("qkv", "wq_a", p.wq_a, rank, d);
  check_operand("qkv", "q_norm", p.q_norm, {rank}, kPlainTypes);
  check_weight("qkv", "wq_b", p.wq_b, heads * head_dim, rank);
  check_weight("qkv", "wkv", p.wkv, head_dim, d);
  check_operand("qkv", "kv_norm", p.kv_norm, {head_dim}, kPlainTypes);
  check_operand("qkv", "inv_freq", p.rope.inv_freq, {p.rope.inv_freq.dim(0)}, DType::kF32);
  check_operand("qkv", "r", p.r, {queries, rank}, p.x.dtype());
  check_operand("qkv", "q", p.q, {queries, heads, head_dim}, p.x.dtype());
  check_operand("qkv", "window_codes", p.window_codes, {rows, head_dim}, DType::kE4M3);
  check_operand("qkv", "window_scales", p.window_scales, {rows, head_dim / kBlock}, DType::kE8M0);
}

}  // namespace deepinfer::ops
