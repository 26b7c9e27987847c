#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "ops/reference/reference.h"

namespace deepinfer::ops::reference {
namespace {

/// Whether code 0x7F or 0xFF (e4m3's NaN) or scale 0xFF (e8m0's) occurs in row `i`.
bool holds_nan(const QuantView& table, int64_t i) {
  const auto* codes = table.weight.row<const uint8_t>(i);
  const auto* scales = table.scale.row<const uint8_t>(i / table.scale_rows);
  return std::any_of(codes, codes + table.weight.dim(1),
                     [](uint8_t code) { return (code & 0x7F) == 0x7F; }) ||
         std::any_of(scales, scales + table.scale.dim(1),
                     [](uint8_t scale) { return scale == 0xFF; });
}

/// The table rows of one position, one after the other. Tables are too large to be scanned when a
/// checkpoint is opened, so damage is found here.
void gather(const QuantView& table, std::span<const int64_t> rows, std::span<float> out) {
  const auto width = static_cast<size_t>(table.cols());
  for (size_t c = 0; c < rows.size(); ++c) {
    DEEPINFER_CHECK(rows[c] >= 0 && rows[c] < table.rows(), "engram: row {} of a table of {}",
                    rows[c], table.rows());
    if (holds_nan(table, rows[c])) {
      fail(
          ErrorCode::kInvalidFile,
          "row {} of an Engram table (engram.embed) holds a NaN, expected finite codes and scales: "
          "the checkpoint is damaged",
          rows[c]);
    }
    dequantize_row(table, rows[c], out.subspan(c * width, width));
  }
}

/// (mean(v²) + ε)^½
float rms_of(std::span<const float> v, float eps) {
  const auto n = static_cast<int64_t>(v.size());
  return std::sqrt(dot(v.data(), v.data(), n) / static_cast<float>(n) + eps);
}

/// gate of one stream (spec/model.md §7, "Write").
float gate_of(std::span<const float> stream, std::span<const float> key,
              std::span<const float> q_weight, std::span<const float> k_weight, float eps) {
  std::vector<float> query(stream.size());
  for (size_t i = 0; i < query.size(); ++i) query[i] = stream[i] * (q_weight[i] * k_weight[i]);
  const auto n = static_cast<int64_t>(key.size());
  const float score = dot(query.data(), key.data(), n) / (rms_of(stream, eps) * rms_of(key, eps)) /
                      std::sqrt(static_cast<float>(n));
  return sigmoid(std::copysign(std::sqrt(std::max(std::fabs(score), 1e-6F)), score));
}

}  // namespace

void engram(const Context& context, const EngramParams& p) {
  const int64_t num_rows = p.streams.dim(0);
  const int64_t m = p.streams.dim(1);
  const auto d = static_cast<size_t>(p.streams.dim(2));
  const auto columns = static_cast<size_t>(p.primes.dim(0));
  const size_t inputs = columns * static_cast<size_t>(p.table.cols());
  const size_t outputs = static_cast<size_t>(m + 1) * d;

  std::vector<float> gathered(static_cast<size_t>(num_rows) * inputs);
  context.pool->parallel_for(num_rows, 4, [&](int64_t begin, int64_t end) {
    std::vector<int64_t> rows(columns);
    for (int64_t b = begin; b < end; ++b) {
      engram_rows(p, {p.context.row<const int32_t>(b), static_cast<size_t>(p.context.dim(1))},
                  rows);
      gather(p.table, rows, row_of(gathered, b, inputs));
      if (!p.trace_rows.empty()) std::ranges::copy(rows, p.trace_rows.row<int64_t>(b));
    }
  });
  std::vector<float> projected(static_cast<size_t>(num_rows) * outputs);
  linear(context, p.wkv, gathered, num_rows, projected, InputRounding::kFp8, ResultRounding::kAct);

  const std::vector<float> q_weight = load_rows(p.q_weight);
  const std::vector<float> k_weight = load_rows(p.k_weight);
  context.pool->parallel_for(num_rows, 4, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      const std::span<float> keys_and_value = row_of(projected, b, outputs);
      const std::span<const float> value = row_of(keys_and_value, m, d);
      const bool dead = p.context.row<const int32_t>(b)[0] < 0;
      for (int64_t j = 0; j < m; ++j) {
        const size_t at = static_cast<size_t>(j) * d;
        std::vector<float> stream = load_row(p.streams.at(b), j);
        const float gate =
            dead ? 0.0F
                 : gate_of(stream, row_of(keys_and_value, j, d), std::span(q_weight).subspan(at, d),
                           std::span(k_weight).subspan(at, d), p.eps);
        for (size_t i = 0; i < d; ++i) stream[i] += gate * value[i];
        store_row(stream, p.streams.at(b), j);
        if (!p.trace_gate.empty()) p.trace_gate.row<float>(b)[j] = gate;
      }
    }
  });
}

}  // namespace deepinfer::ops::reference
