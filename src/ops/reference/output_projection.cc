#include <algorithm>

#include "ops/reference/reference.h"

namespace deepinfer::ops::reference {
namespace {

/// Rows [begin, begin + count) of a weight; `begin` is a multiple of its scale_rows.
QuantView slice_rows(const QuantView& weight, int64_t begin, int64_t count) {
  QuantView slice = weight;
  slice.weight = weight.weight.slice(begin, count);
  if (!weight.scale.empty()) {
    slice.scale = weight.scale.slice(begin / weight.scale_rows,
                                     (count + weight.scale_rows - 1) / weight.scale_rows);
  }
  return slice;
}

}  // namespace

void output_projection(const Context& context, const OutputProjectionParams& p) {
  const int64_t rows = p.o.dim(0);
  const int64_t rank = p.wo_a.rows() / p.groups;
  const auto inputs = static_cast<size_t>(p.wo_a.cols());
  const auto outputs = static_cast<size_t>(rank);
  const auto latent = static_cast<size_t>(p.wo_a.rows());

  std::vector<float> o = load_rows(p.o);
  std::vector<float> concatenated(static_cast<size_t>(rows) * latent);
  std::vector<float> group_in(static_cast<size_t>(rows) * inputs);
  std::vector<float> group_out(static_cast<size_t>(rows) * outputs);
  for (int64_t g = 0; g < p.groups; ++g) {
    const auto group = static_cast<size_t>(g);
    for (int64_t b = 0; b < rows; ++b) {
      const std::span<float> heads = row_of(o, b, inputs * static_cast<size_t>(p.groups));
      std::ranges::copy(heads.subspan(group * inputs, inputs), row_of(group_in, b, inputs).begin());
    }
    linear(context, slice_rows(p.wo_a, g * rank, rank), group_in, rows, group_out,
           InputRounding::kNone, ResultRounding::kAct);
    for (int64_t b = 0; b < rows; ++b) {
      std::ranges::copy(row_of(group_out, b, outputs),
                        row_of(concatenated, b, latent).subspan(group * outputs).begin());
    }
  }
  std::vector<float> y(static_cast<size_t>(rows * p.y.dim(1)));
  linear(context, p.wo_b, concatenated, rows, y, InputRounding::kFp8, ResultRounding::kAct);
  store_rows(y, p.y);
}

}  // namespace deepinfer::ops::reference
