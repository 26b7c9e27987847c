#include <algorithm>

#include "ops/reference/reference.h"

namespace deepinfer::ops::reference {

void logits(const Context& context, const LogitsParams& p) {
  const int64_t rows = p.streams.dim(0);
  const auto d = static_cast<size_t>(p.streams.dim(2));
  std::vector<float> x(static_cast<size_t>(rows) * d);
  for (int64_t b = 0; b < rows; ++b) {
    std::vector<float> row = collapse(context, p.streams.at(b), p.pre.row<const float>(b));
    if (!p.trace_collapse.empty()) store_row(row, p.trace_collapse, b);
    rms_norm(context, row, p.norm, p.eps);
    if (!p.trace_norm.empty()) store_row(row, p.trace_norm, b);
    std::ranges::copy(row, row_of(x, b, d).begin());
  }
  std::vector<float> y(static_cast<size_t>(rows * p.head.dim(0)));
  linear(context, {.weight = p.head, .scale = {}}, x, rows, y, InputRounding::kNone,
         ResultRounding::kNone);
  store_rows(y, p.logits);
}

void tap(const Context& context, const TapParams& p) {
  const int64_t m = p.streams.dim(1);
  for (int64_t b = 0; b < p.streams.dim(0); ++b) {
    std::vector<float> mean(static_cast<size_t>(p.streams.dim(2)));
    for (int64_t j = 0; j < m; ++j) {
      const std::vector<float> stream = load_row(p.streams.at(b), j);
      for (size_t i = 0; i < mean.size(); ++i) mean[i] += stream[i];
    }
    for (float& v : mean) v = context.act(v / static_cast<float>(m));
    store_row(mean, p.out, b);
  }
}

}  // namespace deepinfer::ops::reference
