#include <algorithm>
#include <cmath>

#include "ops/reference/reference.h"

namespace deepinfer::ops::reference {
namespace {

void softmax(std::span<float> x) {
  const float largest = *std::ranges::max_element(x);
  float sum = 0;
  for (float& v : x) sum += v = std::exp(v - largest);
  for (float& v : x) v /= sum;
}

/// The mixing matrix from its logits, in place (spec/model.md §2): softmax over k plus ε_hc, then
/// columns and rows normalised in turn, ending on columns. `comb` is [m, m] row-major.
void sinkhorn(std::span<float> comb, size_t m, float eps, int64_t iterations) {
  const auto normalize = [&](size_t first, size_t step) {
    float sum = 0;
    for (size_t i = 0; i < m; ++i) sum += comb[first + i * step];
    for (size_t i = 0; i < m; ++i) comb[first + i * step] /= sum + eps;
  };
  const auto normalize_columns = [&] {
    for (size_t k = 0; k < m; ++k) normalize(k, m);
  };
  for (size_t j = 0; j < m; ++j) softmax(comb.subspan(j * m, m));
  for (float& c : comb) c += eps;
  normalize_columns();
  for (int64_t i = 1; i < iterations; ++i) {
    for (size_t j = 0; j < m; ++j) normalize(j * m, 1);
    normalize_columns();
  }
}

/// pre, post and comb of one row from a = fn · z.
void mix_coefficients(const SiteBeginParams& p, std::span<const float> a, int64_t row) {
  const auto m = static_cast<size_t>(p.streams.dim(1));
  const auto* base = p.base.as<const float>();
  const auto* scale = p.scale.as<const float>();
  auto* pre = p.pre.row<float>(row);
  auto* post = p.post.row<float>(row);
  const std::span<float> comb(p.comb.row<float>(row), m * m);
  for (size_t j = 0; j < m; ++j) {
    pre[j] = sigmoid(a[j] * scale[0] + base[j]) + p.hc_eps;
    post[j] = 2 * sigmoid(a[m + j] * scale[1] + base[m + j]);
  }
  for (size_t i = 0; i < m * m; ++i) comb[i] = a[2 * m + i] * scale[2] + base[2 * m + i];
  sinkhorn(comb, m, p.hc_eps, p.sinkhorn_iterations);
}

}  // namespace

void site_begin(const Context& context, const SiteBeginParams& p) {
  const int64_t rows = p.streams.dim(0);
  const auto flat = static_cast<size_t>(p.streams.dim(1) * p.streams.dim(2));
  const auto coefficients = static_cast<size_t>(p.fn.dim(0));

  std::vector<float> z = load_rows(p.streams);
  for (int64_t b = 0; b < rows; ++b) {
    const std::span<float> row = row_of(z, b, flat);
    const auto n = static_cast<int64_t>(flat);
    const float mean = dot(row.data(), row.data(), n) / static_cast<float>(n);
    const float factor = 1.0F / std::sqrt(mean + p.eps);
    for (float& v : row) v *= factor;
  }
  std::vector<float> a(static_cast<size_t>(rows) * coefficients);
  linear(context, {.weight = p.fn, .scale = {}}, z, rows, a, InputRounding::kNone,
         ResultRounding::kNone);

  context.pool->parallel_for(rows, 4, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      // Before the coefficients: `pre` may be the memory of `pre_prev`.
      std::vector<float> x = collapse(context, p.streams.at(b), p.pre_prev.row<const float>(b));
      rms_norm(context, x, p.norm, p.eps);
      store_row(x, p.x, b);
      mix_coefficients(p, row_of(a, b, coefficients), b);
    }
  });
}

void site_end(const Context& context, const SiteEndParams& p) {
  const int64_t m = p.streams.dim(1);
  const auto d = static_cast<size_t>(p.streams.dim(2));
  context.pool->parallel_for(p.streams.dim(0), 4, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      const std::vector<float> y = load_row(p.y, b);
      std::vector<float> streams = load_row(p.streams, b);  // all of them: each S'[k] reads every S
      const auto* post = p.post.row<const float>(b);
      const auto* comb = p.comb.row<const float>(b);
      for (int64_t k = 0; k < m; ++k) {
        std::vector<float> sum(d);
        for (size_t i = 0; i < d; ++i) sum[i] = post[k] * y[i];
        for (int64_t j = 0; j < m; ++j) {
          const std::span<const float> stream = row_of(streams, j, d);
          for (size_t i = 0; i < d; ++i) sum[i] += comb[j * m + k] * stream[i];
        }
        store_row(sum, p.streams.at(b), k);
      }
    }
  });
}

}  // namespace deepinfer::ops::reference
