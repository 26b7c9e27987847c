#include "ops/sparse_attention.h"

#include "ops/check.h"

namespace deepinfer::ops {

void check(const SparseAttentionParams& p) {
  constexpr auto kOp = "sparse_attention";
  check_rank(kOp, "q", p.q, 3);
  check_rank(kOp, "inv_freq", p.rope.inv_freq, 1);
  const int64_t rows = p.q.dim(0);
  const int64_t heads = p.q.dim(1);
  const int64_t head_dim = p.q.dim(2);
  check_operand(kOp, "q", p.q, {rows, heads, head_dim}, kActTypes);
  check_rank(kOp, "window_codes", p.window_codes, 2);
  const int64_t keys = p.window_codes.dim(0);
  DEEPINFER_CHECK(keys >= rows, "{}: window keys of {} rows, expected at least {}", kOp, keys,
                  rows);
  check_rows(kOp, p.rows, keys);
  check_window(kOp, p.rings, p.window_codes, p.window_scales, p.window, keys, head_dim);
  if (!p.window_floor.empty()) {
    check_at_least(kOp, "window_floor", p.window_floor, rows, {}, DType::kI64);
  }
  if (!p.selected.empty()) {
    check_entry_pages(kOp, p.pages, p.slots, head_dim);
    check_rank(kOp, "selected", p.selected, 2);
    check_at_least(kOp, "selected", p.selected, rows, {p.selected.dim(1)}, DType::kI32);
    check_at_least(kOp, "num_selected", p.num_selected, rows, {}, DType::kI32);
  }
  check_operand(kOp, "sink", p.sink, {heads}, DType::kF32);
  check_operand(kOp, "inv_freq", p.rope.inv_freq, p.rope.inv_freq.shape(), DType::kF32);
  DEEPINFER_CHECK(2 * p.rope.inv_freq.dim(0) <= head_dim, "{}: {} rotated pairs in {} channels",
                  kOp, p.rope.inv_freq.dim(0), head_dim);
  check_operand(kOp, "out", p.out, {rows, heads, head_dim}, p.q.dtype());
  check_optional(kOp, "trace_core", p.trace_core, {rows, heads, head_dim}, DType::kF32);
}

void check(const WindowStoreParams& p) {
  check_rank("window_store", "window_codes", p.window_codes, 2);
  const int64_t rows = p.window_codes.dim(0);
  check_rows("window_store", p.rows, rows);
  check_window("window_store", p.rings, p.window_codes, p.window_scales, 1, rows,
               p.window_codes.dim(1));
}

}  // namespace deepinfer::ops
