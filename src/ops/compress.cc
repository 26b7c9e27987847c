#include "ops/compress.h"

#include <algorithm>

#include "ops/check.h"

namespace deepinfer::ops {

void check(const CompressParams& p) {
  check_rank("compress", "x", p.x, 2);
  check_rank("compress", "wkv", p.wkv, 2);
  check_rank("compress", "index_wk", p.index_wk, 2);
  check_rank("compress", "inv_freq", p.rope.inv_freq, 1);
  const int64_t rows = p.x.dim(0);
  const int64_t d = p.x.dim(1);
  const int64_t head_dim = p.wkv.dim(0);
  const int64_t index_dim = p.index_wk.dim(0);
  check_operand("compress", "x", p.x, {rows, d}, kActTypes);
  check_rows("compress", p.rows, rows);
  check_operand("compress", "wkv", p.wkv, {head_dim, d}, kPlainTypes);
  check_operand("compress", "norm", p.norm, {head_dim}, kPlainTypes);
  check_operand("compress", "index_wk", p.index_wk, {index_dim, head_dim}, kPlainTypes);
  check_operand("compress", "index_norm", p.index_norm, {index_dim}, kPlainTypes);
  check_operand("compress", "inv_freq", p.rope.inv_freq, p.rope.inv_freq.shape(), DType::kF32);
  DEEPINFER_CHECK(2 * p.rope.inv_freq.dim(0) <= std::min(head_dim, index_dim),
                  "compress: {} rotated pairs in {} and {} channels", p.rope.inv_freq.dim(0),
                  head_dim, index_dim);
  check_entry_pages("compress", p.pages, p.slots, head_dim);
  check_key_pages("compress", p.pages, p.slots, index_dim);
  if (p.pages.ratio == 2) {
    check_operand("compress", "wgate", p.wgate, {head_dim, d}, kPlainTypes);
    check_operand("compress", "pending", p.pending,
                  {p.slots.page_table.dim(0), kPendingRows, 2, head_dim}, DType::kF32);
  }
  check_optional("compress", "trace_latent", p.trace_latent, {rows, head_dim}, DType::kF32);
}

}  // namespace deepinfer::ops
