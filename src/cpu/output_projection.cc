#include <new>
#include <span>

#include "cpu/linear.h"
#include "cpu/operations.h"

namespace deepinfer::cpu {
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

void output_projection(const Context& context, const ops::OutputProjectionParams& p) {
  const int64_t rows = p.o.dim(0);
  const int64_t rank = p.wo_a.rows() / p.groups;
  Arena& arena = context.workspace.shared();
  const TensorView latent(arena.take<BFloat16>(rows * p.wo_a.rows()), DType::kBF16,
                          {rows, p.groups, rank});
  const TensorView heads = p.o.reshape({rows, p.groups, p.wo_a.cols()});
  auto* groups = arena.take<Product>(p.groups);
  for (int64_t g = 0; g < p.groups; ++g) {
    new (&groups[g]) Product{.weight = slice_rows(p.wo_a, g * rank, rank),
                             .x = heads.select(1, g),
                             .y = latent.select(1, g),
                             .rounding = InputRounding::kNone};
  }
  linear(context, std::span(groups, static_cast<size_t>(p.groups)));
  linear(context, {.weight = p.wo_b,
                   .x = latent.reshape({rows, p.wo_a.rows()}),
                   .y = p.y,
                   .rounding = InputRounding::kFp8});
}

}  // namespace deepinfer::cpu
