#include "ops/index_select.h"

#include "ops/check.h"

namespace deepinfer::ops {
namespace {

void check_candidates(std::string_view name, const CandidateBlocks& candidates, int64_t rows) {
  if (candidates.blocks.empty()) return;
  check_rank("index_select", name, candidates.blocks, 2);
  check_at_least("index_select", name, candidates.blocks, rows, {candidates.blocks.dim(1)},
                 DType::kI32);
  check_at_least("index_select", "count", candidates.count, rows, {}, DType::kI32);
  DEEPINFER_CHECK(candidates.block_size >= 1, "index_select: {} has blocks of {} entries", name,
                  candidates.block_size);
}

}  // namespace

void check(const IndexSelectParams& p) {
  check_rank("index_select", "x", p.x, 2);
  check_rank("index_select", "r", p.r, 2);
  check_rank("index_select", "weights_proj", p.weights_proj, 2);
  check_rank("index_select", "inv_freq", p.rope.inv_freq, 1);
  check_rank("index_select", "selected", p.selected, 2);
  const int64_t rows = p.x.dim(0);
  const int64_t d = p.x.dim(1);
  const int64_t heads = p.weights_proj.dim(0);
  DEEPINFER_CHECK(heads >= 1 && !p.wq_b.empty() && p.wq_b.rows() % heads == 0,
                  "index_select: the rows of wq_b do not divide into {} heads", heads);
  const int64_t index_dim = p.wq_b.rows() / heads;
  check_operand("index_select", "x", p.x, {rows, d}, kActTypes);
  check_operand("index_select", "r", p.r, {rows, p.r.dim(1)}, p.x.dtype());
  check_rows("index_select", p.rows, rows);
  check_weight("index_select", "wq_b", p.wq_b, heads * index_dim, p.r.dim(1));
  check_operand("index_select", "weights_proj", p.weights_proj, {heads, d}, kPlainTypes);
  check_operand("index_select", "inv_freq", p.rope.inv_freq, p.rope.inv_freq.shape(), DType::kF32);
  DEEPINFER_CHECK(2 * p.rope.inv_freq.dim(0) <= index_dim,
                  "index_select: {} rotated pairs in {} channels", p.rope.inv_freq.dim(0),
                  index_dim);
  check_key_pages("index_select", p.pages, p.slots, index_dim);
  check_candidates("restrict_to", p.restrict_to, rows);
  check_candidates("publish", p.publish, rows);
  DEEPINFER_CHECK(p.restrict_to.blocks.empty() || p.publish.blocks.empty(),
                  "index_select: the candidate source is not restricted itself");
  check_operand("index_select", "selected", p.selected, {rows, p.selected.dim(1)}, DType::kI32);
  check_operand("index_select", "num_selected", p.num_selected, {rows}, DType::kI32);
  check_optional("index_select", "trace_query", p.trace_query, {rows, heads, index_dim},
                 DType::kF32);
  if (!p.trace_scores.empty()) {
    check_rank("index_select", "trace_scores", p.trace_scores, 2);
    check_operand("index_select", "trace_scores", p.trace_scores, {rows, p.trace_scores.dim(1)},
                  DType::kF32);
  }
}

}  // namespace deepinfer::ops
