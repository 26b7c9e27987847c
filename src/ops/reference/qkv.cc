#include "ops/reference/reference.h"
#include "tensor/quantize.h"

namespace deepinfer::ops::reference {
namespace {

/// r = rms(x · wq_a; q_norm), q = r · wq_b, rotated head by head.
void project_queries(const Context& context, const QkvParams& p, std::span<const float> x) {
  const int64_t rows = p.q.dim(0);
  const auto rank = static_cast<size_t>(p.r.dim(1));
  const auto heads_size = static_cast<size_t>(p.q.dim(1) * p.q.dim(2));
  std::vector<float> r(static_cast<size_t>(rows) * rank);
  linear(context, p.wq_a, x.first(static_cast<size_t>(rows * p.x.dim(1))), rows, r,
         InputRounding::kFp8, ResultRounding::kAct);
  for (int64_t b = 0; b < rows; ++b) rms_norm(context, row_of(r, b, rank), p.q_norm, p.eps);
  store_rows(r, p.r);

  std::vector<float> q(static_cast<size_t>(rows) * heads_size);
  linear(context, p.wq_b, r, rows, q, InputRounding::kFp8, ResultRounding::kAct);
  const auto* position = p.position.as<const int64_t>();
  context.pool->parallel_for(rows, 4, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      const std::span<float> row = row_of(q, b, heads_size);
      for (int64_t h = 0; h < p.q.dim(1); ++h) {
        rotate(context, row_of(row, h, static_cast<size_t>(p.q.dim(2))), p.rope, position[b]);
      }
      store_row(row, p.q, b);
    }
  });
}

/// kv = rms(x · wkv; kv_norm), rotated, then the window cache's FP8 rounding of all channels.
void project_window_keys(const Context& context, const QkvParams& p, std::span<const float> x) {
  const int64_t rows = p.x.dim(0);
  const auto head_dim = static_cast<size_t>(p.q.dim(2));
  std::vector<float> kv(static_cast<size_t>(rows) * head_dim);
  linear(context, p.wkv, x, rows, kv, InputRounding::kFp8, ResultRounding::kAct);
  for (int64_t b = 0; b < rows; ++b) {
    const std::span<float> row = row_of(kv, b, head_dim);
    rms_norm(context, row, p.kv_norm, p.eps);
    rotate(context, row, p.rope, p.position.as<const int64_t>()[b]);
    quantize_fp8(row, p.window_codes.row<uint8_t>(b), p.window_scales.row<uint8_t>(b));
  }
}

}  // namespace

void qkv(const Context& context, const QkvParams& p) {
  const std::vector<float> x = load_rows(p.x);
  project_queries(context, p, x);
  project_window_keys(context, p, x);
}

}  // namespace deepinfer::ops::reference
