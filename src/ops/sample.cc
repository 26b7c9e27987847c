#include "ops/sample.h"

#include <algorithm>
#include <cmath>

#include "ops/check.h"

namespace deepinfer::ops {
namespace {

void check_row(const SampleRow& row, int64_t i, int64_t vocab, bool has_counts) {
  // Written so that NaN fails.
  DEEPINFER_CHECK(row.temperature >= 0 && row.top_p > 0 && row.min_p >= 0 && row.min_p <= 1,
                  "sample: row {} has temperature {}, top_p {}, min_p {}", i, row.temperature,
                  row.top_p, row.min_p);
  DEEPINFER_CHECK(row.repetition_penalty > 0 && std::isfinite(row.frequency_penalty) &&
                      std::isfinite(row.presence_penalty),
                  "sample: row {} has repetition, frequency, presence penalty {}, {}, {}", i,
                  row.repetition_penalty, row.frequency_penalty, row.presence_penalty);
  DEEPINFER_CHECK(std::max(row.forced_token, row.banned_token) < vocab && row.top_k >= 0,
                  "sample: row {} has forced_token {}, banned_token {} of {}, top_k {}", i,
                  row.forced_token, row.banned_token, vocab, row.top_k);
  DEEPINFER_CHECK(has_counts || !has_penalty(row), "sample: row {} has a penalty but no counts", i);
}

}  // namespace

void check(const SampleParams& p) {
  check_rank("sample", "logits", p.logits, 2);
  const int64_t rows = p.logits.dim(0);
  const int64_t vocab = p.logits.dim(1);
  check_operand("sample", "logits", p.logits, {rows, vocab}, DType::kF32);
  DEEPINFER_CHECK(vocab >= 1 && static_cast<int64_t>(p.rows.size()) == rows,
                  "sample: {} rows of parameters for logits {}", p.rows.size(),
                  p.logits.shape().to_string());
  check_operand("sample", "slot", p.slot, {rows}, DType::kI32);
  check_operand("sample", "position", p.position, {rows}, DType::kI64);
  if (!p.counts.empty()) {
    check_rank("sample", "counts", p.counts, 2);
    check_operand("sample", "counts", p.counts, {p.counts.dim(0), vocab}, DType::kI32);
  }
  check_optional("sample", "bias", p.bias, {rows, vocab}, DType::kF32);
  check_optional("sample", "mask", p.mask, {rows, (vocab + 31) / 32}, DType::kI32);
  check_operand("sample", "token", p.token, {rows}, DType::kI32);
  check_operand("sample", "logprob", p.logprob, {rows}, DType::kF32);
  if (!p.top_tokens.empty()) {
    check_rank("sample", "top_tokens", p.top_tokens, 2);
    const Shape top = {rows, p.top_tokens.dim(1)};
    check_operand("sample", "top_tokens", p.top_tokens, top, DType::kI32);
    check_operand("sample", "top_logprobs", p.top_logprobs, top, DType::kF32);
  }
  for (int64_t i = 0; i < rows; ++i) {
    check_row(p.rows[static_cast<size_t>(i)], i, vocab, !p.counts.empty());
  }
}

}  // namespace deepinfer::ops
