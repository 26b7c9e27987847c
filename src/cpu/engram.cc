#include <algorithm>

#include "base/error.h"
#include "cpu/linear.h"
#include "cpu/operations.h"

namespace deepinfer::cpu {
namespace {

/// Row `row` of the table as bf16, exact. Tables are too large to be scanned when a checkpoint is
/// opened, so damage is found here.
void gather(const QuantView& table, int64_t row, BFloat16* out) {
  DEEPINFER_CHECK(row >= 0 && row < table.rows(), "engram: row {} of a table of {}", row,
                  table.rows());
  const auto* codes = table.weight.row<const uint8_t>(row);
  const auto* scales = table.scale.row<const uint8_t>(row / table.scale_rows);
  bool is_nan = false;
  for (int64_t i = 0; i < table.cols(); ++i) {
    is_nan = is_nan || (codes[i] & 0x7F) == 0x7F || scales[i / kStep] == 0xFF;
    out[i] = to_bfloat16(e4m3_to_float(codes[i]) * e8m0_to_float(scales[i / kStep]));
  }
  if (is_nan) {
    fail(ErrorCode::kInvalidFile,
         "row {} of an Engram table (engram.embed) holds a NaN, expected finite codes and scales: "
         "the checkpoint is damaged",
         row);
  }
}

void load_floats(const TensorView& view, float* out) {
  const int64_t count = view.shape().num_elements();
  if (view.dtype() == DType::kF32) {
    std::copy_n(view.as<const float>(), count, out);
    return;
  }
  const auto* values = view.as<const BFloat16>();
  for (int64_t i = 0; i < count; ++i) out[i] = to_float(values[i]);
}

/// The rows that every position's n-grams name, side by side: [B, C·w].
TensorView gather_rows(const Context& context, const ops::EngramParams& p) {
  const int64_t num_rows = p.streams.dim(0);
  const int64_t columns = p.primes.dim(0);
  const int64_t width = p.table.cols();
  Arena& arena = context.workspace.shared();
  const TensorView gathered(arena.take<BFloat16>(num_rows * columns * width), DType::kBF16,
                            {num_rows, columns * width});
  auto* rows = arena.take<int64_t>(num_rows * columns);
  context.parallel_for(num_rows, 4, [&](int64_t begin, int64_t end) {
    // A scale of 2^-127 is subnormal, the weights that it makes are not.
    const KeepDenormals keep;
    for (int64_t b = begin; b < end; ++b) {
      int64_t* row = rows + b * columns;
      engram_rows(p, {p.context.row<const int32_t>(b), static_cast<size_t>(p.context.dim(1))},
                  {row, static_cast<size_t>(columns)});
      for (int64_t c = 0; c < columns; ++c) {
        gather(p.table, row[c], gathered.row<BFloat16>(b) + c * width);
      }
      if (!p.trace_rows.empty()) std::copy_n(row, columns, p.trace_rows.row<int64_t>(b));
    }
  });
  return gathered;
}

}  // namespace

void engram(const Context& context, const ops::EngramParams& p) {
  const int64_t num_rows = p.streams.dim(0);
  const int64_t m = p.streams.dim(1);
  const int64_t d = p.streams.dim(2);
  const TensorView gathered = gather_rows(context, p);
  Arena& arena = context.workspace.shared();
  const TensorView projected(arena.take<BFloat16>(num_rows * (m + 1) * d), DType::kBF16,
                             {num_rows, (m + 1) * d});
  linear(context,
         {.weight = p.wkv, .x = gathered, .y = projected, .rounding = InputRounding::kFp8});

  auto* weight = arena.take<float>(m * d);
  auto* k_weight = arena.take<float>(m * d);
  load_floats(p.q_weight, weight);
  load_floats(p.k_weight, k_weight);
  for (int64_t i = 0; i < m * d; ++i) weight[i] *= k_weight[i];
  context.parallel_for(num_rows * m, 4, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t b = task / m;
      const int64_t j = task % m;
      const auto* keys = projected.row<const BFloat16>(b);
      const float gate = context.kernels.rows.gate({.key = keys + j * d,
                                                    .value = keys + m * d,
                                                    .weight = weight + j * d,
                                                    .d = d,
                                                    .eps = p.eps,
                                                    .dead = p.context.row<const int32_t>(b)[0] < 0,
                                                    .stream = p.streams.row<BFloat16>(b) + j * d});
      if (!p.trace_gate.empty()) p.trace_gate.row<float>(b)[j] = gate;
    }
  });
}

}  // namespace deepinfer::cpu
