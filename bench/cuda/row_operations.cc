// What is done to the rows of a step between the products. Costs are those of ops/cost.h: every
// operand read and written once.

#include <algorithm>
#include <limits>

#include "bench/cuda/harness.h"
#include "bench/cuda/step.h"
#include "cuda/ops/ops.h"
#include "model/engram_hash.h"

namespace deepinfer::bench {
namespace {

void embed(Harness& h) {
  if (!h.wants("embed")) return;
  const MemoryScope scope(h);
  const checkpoint::ModelConfig& c = h.config();
  const TensorView table = h.random(DType::kBF16, {c.vocab_size, c.hidden_size});
  const TensorView token = h.random_bits(DType::kI32, {kPoolRows}, 0xFFFF, 0);  // of 129,280
  const TensorView streams = h.zeros(DType::kBF16, {kPoolRows, c.hc_mult, c.hidden_size});
  for (const int64_t rows : kRowCounts) {
    const auto make = [&](int64_t set) -> ops::EmbedParams {
      return {.token = in_turn(token, set, rows),
              .table = table,
              .streams = in_turn(streams, set, rows)};
    };
    h.measure<ops::EmbedParams>("embed", rows, make, cuda::embed);
  }
}

/// One layer's table and addresses.
struct EngramTable {
  EngramTable(Harness& h, bool is_pinned) {
    const checkpoint::ModelConfig& c = h.config();
    model::EngramHash hash = std::move(model::engram_hashes(c).front());
    const auto place = [&](std::vector<int64_t>& values) {
      return h.upload({values.data(), DType::kI64, {std::ssize(values)}});
    };
    multipliers = place(hash.multipliers);
    primes = place(hash.primes);
    offsets = place(hash.offsets);
    const auto make = [&](DType dtype, int64_t width, uint32_t mask, uint32_t base) {
      const Shape shape = {hash.num_rows, width};
      return is_pinned ? h.pinned_bits(dtype, shape, mask, base)
                       : h.random_bits(dtype, shape, mask, base);
    };
    table = {.weight = make(DType::kE4M3, c.engram_head_dim, 0xBFBFBFBF, 0),
             .scale = make(DType::kE8M0, c.engram_head_dim / 32, 0x03030303, 0x74747474),
             .scale_rows = 1};
  }

  TensorView multipliers, primes, offsets;
  QuantView table;
};

/// Bytes beside the gathered rows (24 of 264 bytes per token): wkv and streams. Those of a table in
/// pinned host memory have a bound of their own. Library: the product with wkv.
void engram(Harness& h, bool is_pinned) {
  const char* name = is_pinned ? "engram, pinned table" : "engram, device table";
  if (!h.wants(name)) return;
  const MemoryScope scope(h);
  const checkpoint::ModelConfig& c = h.config();
  const EngramTable layer(h, is_pinned);
  const int64_t columns = layer.primes.dim(0) * c.engram_head_dim;
  const int64_t outputs = (c.hc_mult + 1) * c.hidden_size;
  const TensorView token_map = h.random_bits(DType::kI32, {c.vocab_size}, 0xFFFF, 0);  // of 99,092
  const auto wkv = h.random_weights(DType::kE4M3, outputs, columns);
  const TensorView weights = h.random(DType::kBF16, {c.hc_mult, c.hidden_size});
  const TensorView streams = h.random(DType::kBF16, {kPoolRows, c.hc_mult, c.hidden_size});
  for (const int64_t rows : kRowCounts) {
    const MemoryScope of_rows(h);
    const auto steps =
        step_sets(h, rows, std::numeric_limits<int32_t>::max(), 0, static_cast<double>(columns));
    const auto make = [&](int64_t set) -> ops::EngramParams {
      return {.context = in_turn(steps, set).device().context,
              .token_map = token_map,
              .pad = c.engram_pad_token_id,
              .multipliers = layer.multipliers,
              .primes = layer.primes,
              .offsets = layer.offsets,
              .table = layer.table,
              .wkv = in_turn(wkv, set),
              .q_weight = weights,
              .k_weight = weights,
              .eps = c.rms_eps,
              .streams = in_turn(streams, set, rows),
              .trace_rows = {},
              .trace_gate = {}};
    };
    Notes notes{.cost = ops::cost_of(make(0))};
    if (is_pinned) {
      const int64_t row_bytes = layer.table.weight.dim(1) + layer.table.scale.dim(1);
      notes.pinned_bytes = static_cast<double>(rows * layer.primes.dim(0) * row_bytes);
      notes.cost->bytes -= notes.pinned_bytes;
    }
    notes.library_us = h.library_us({{.outputs = outputs, .columns = columns, .rows = rows}});
    h.measure<ops::EngramParams>(name, rows, make, cuda::engram, notes);
  }
}

/// The coefficients' product is fp32 on units slower than those of the bound.
void sites(Harness& h) {
  if (!h.wants("site_begin") && !h.wants("site_end")) return;
  const MemoryScope scope(h);
  const checkpoint::ModelConfig& c = h.config();
  const int64_t m = c.hc_mult;
  const int64_t d = c.hidden_size;
  const int64_t coefficients = 2 * m + m * m;
  const TensorView streams = h.random(DType::kBF16, {kPoolRows, m, d});
  const TensorView x = h.random(DType::kBF16, {kPoolRows, d});
  const TensorView pre = h.random(DType::kF32, {kPoolRows, m});
  const TensorView post = h.random(DType::kF32, {kPoolRows, m});
  const TensorView comb = h.random(DType::kF32, {kPoolRows, m, m});
  const TensorView base = h.random(DType::kF32, {coefficients});
  const TensorView scale = h.random(DType::kF32, {3});
  const TensorView norm = h.random(DType::kBF16, {d});
  std::vector<TensorView> fn = {h.random(DType::kF32, {coefficients, m * d})};
  while (std::ssize(fn) < num_sets(static_cast<double>(fn[0].num_bytes()))) {
    fn.push_back(h.random(DType::kF32, {coefficients, m * d}));
  }
  const auto begin = [&](int64_t set, int64_t rows) -> ops::SiteBeginParams {
    return {.streams = in_turn(streams, set, rows),
            .pre_prev = in_turn(pre, set, rows),
            .fn = in_turn(fn, set),
            .base = base,
            .scale = scale,
            .norm = norm,
            .eps = c.rms_eps,
            .hc_eps = c.hc_eps,
            .sinkhorn_iterations = c.hc_sinkhorn_iterations,
            .x = in_turn(x, set, rows),
            .pre = in_turn(pre, set, rows),
            .post = in_turn(post, set, rows),
            .comb = in_turn(comb, set, rows)};
  };
  const auto end = [&](int64_t set, int64_t rows) -> ops::SiteEndParams {
    return {.y = in_turn(x, set, rows),
            .post = in_turn(post, set, rows),
            .comb = in_turn(comb, set, rows),
            .streams = in_turn(streams, set, rows)};
  };
  for (const int64_t rows : kRowCounts) {
    if (!h.wants("site_begin")) break;
    h.measure<ops::SiteBeginParams>(
        "site_begin", rows, [&](int64_t set) { return begin(set, rows); }, cuda::site_begin);
  }
  for (const int64_t rows : kRowCounts) {
    if (!h.wants("site_end")) break;
    h.measure<ops::SiteEndParams>(
        "site_end", rows, [&](int64_t set) { return end(set, rows); }, cuda::site_end);
  }
}

void combine(Harness& h) {
  if (!h.wants("combine")) return;
  const MemoryScope scope(h);
  const checkpoint::ModelConfig& c = h.config();
  const TensorView experts = h.random_bits(DType::kI32, {kPoolRows, c.experts_per_token}, 0xFF, 0);
  const TensorView slot_rows =
      h.random(DType::kBF16, {kPoolRows, c.experts_per_token, c.hidden_size});
  const TensorView shared_rows = h.random(DType::kBF16, {kPoolRows, c.hidden_size});
  const TensorView y = h.zeros(DType::kBF16, {kPoolRows, c.hidden_size});
  for (const int64_t rows : kRowCounts) {
    const auto make = [&](int64_t set) -> ops::CombineParams {
      return {.experts = in_turn(experts, set, rows),
              .slot_rows = in_turn(slot_rows, set, rows),
              .shared_rows = in_turn(shared_rows, set, rows),
              .y = in_turn(y, set, rows)};
    };
    h.measure<ops::CombineParams>("combine", rows, make, cuda::combine);
  }
}

void tap(Harness& h) {
  if (!h.wants("tap")) return;
  const MemoryScope scope(h);
  const checkpoint::ModelConfig& c = h.config();
  const TensorView streams = h.random(DType::kBF16, {kPoolRows, c.hc_mult, c.hidden_size});
  const TensorView out = h.zeros(DType::kBF16, {kPoolRows, c.hidden_size});
  for (const int64_t rows : kRowCounts) {
    const auto make = [&](int64_t set) -> ops::TapParams {
      return {.streams = in_turn(streams, set, rows), .out = in_turn(out, set, rows)};
    };
    h.measure<ops::TapParams>("tap", rows, make, cuda::tap);
  }
}

}  // namespace

void measure_row_operations(Harness& harness) {
  embed(harness);
  engram(harness, false);
  engram(harness, true);
  sites(harness);
  combine(harness);
  tap(harness);
}

}  // namespace deepinfer::bench
