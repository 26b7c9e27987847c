// Products and the operations made of them. Costs are those of ops/cost.h: weights as stored once,
// rows read and written once, two operations per multiply-add.

#include <algorithm>
#include <random>

#include "bench/cuda/harness.h"
#include "cuda/gemm.h"
#include "cuda/ops/ops.h"

namespace deepinfer::bench {
namespace {

void linear(Harness& h, const char* name, DType dtype, int64_t outputs, int64_t columns,
            int64_t max_rows = kRowCounts.back()) {
  if (!h.wants(name)) return;
  const MemoryScope scope(h);
  const bool is_fp8 = dtype == DType::kE4M3;
  const auto rounding = is_fp8 ? cuda::InputRounding::kFp8 : cuda::InputRounding::kNone;
  const auto weights = h.random_weights(dtype, outputs, columns);
  const TensorView x = h.random(DType::kBF16, {max_rows, columns});
  const TensorView y = h.zeros(DType::kBF16, {max_rows, outputs});
  for (const int64_t rows : kRowCounts) {
    if (rows > max_rows) break;
    const double us = h.time(std::ssize(weights), [&](int64_t set) {
      cuda::linear(in_turn(weights, set), x.slice(0, rows), rounding, y.slice(0, rows),
                   h.context());
    });
    const auto n = static_cast<double>(rows);
    h.add({.name = name,
           .rows = rows,
           .us = us,
           .cost = {.bytes = bytes_of(weights[0]) + 2 * n * static_cast<double>(outputs + columns),
                    .operations = 2 * n * static_cast<double>(outputs * columns)},
           .library_us = h.library_us({{.outputs = outputs, .columns = columns, .rows = rows}}),
           .is_fp8_linear = is_fp8});
  }
}

void linears(Harness& h) {
  const checkpoint::ModelConfig& c = h.config();
  const int64_t d = c.hidden_size;
  const int64_t engram_columns = (c.engram_max_ngram - 1) * c.engram_num_heads * c.engram_head_dim;
  linear(h, "wq_a", DType::kE4M3, c.q_lora_rank, d);
  linear(h, "attn.wkv", DType::kE4M3, c.head_dim, d);
  linear(h, "wq_b", DType::kE4M3, c.num_heads * c.head_dim, c.q_lora_rank);
  linear(h, "wo_b", DType::kE4M3, d, c.o_groups * c.o_lora_rank);
  linear(h, "indexer.wq_b", DType::kE4M3, c.index_num_heads * c.index_head_dim, c.q_lora_rank);
  linear(h, "shared_experts.w1", DType::kE4M3, c.moe_intermediate_size, d);
  linear(h, "shared_experts.w2", DType::kE4M3, d, c.moe_intermediate_size);
  linear(h, "engram.wkv", DType::kE4M3, (c.hc_mult + 1) * d, engram_columns);
  linear(h, "gate", DType::kBF16, c.num_experts, d);
  linear(h, "compressor.wkv", DType::kBF16, c.head_dim, d);
  linear(h, "head", DType::kBF16, c.vocab_size, d, kMaxDecodeRows);
}

void qkv(Harness& h) {
  if (!h.wants("qkv")) return;
  const MemoryScope scope(h);
  const checkpoint::ModelConfig& c = h.config();
  const int64_t d = c.hidden_size;
  const int64_t size = c.num_heads * c.head_dim;
  const auto wq_a = h.random_weights(DType::kE4M3, c.q_lora_rank, d);
  const auto wq_b = h.random_weights(DType::kE4M3, size, c.q_lora_rank);
  const auto wkv = h.random_weights(DType::kE4M3, c.head_dim, d);
  const TensorView norm = h.random(DType::kBF16, {c.q_lora_rank});
  const TensorView position = h.zeros(DType::kI64, {kPoolRows});
  const ops::Rope rope = h.rope();
  const TensorView x = h.random(DType::kBF16, {kPoolRows, d});
  const TensorView r = h.zeros(DType::kBF16, {kPoolRows, c.q_lora_rank});
  const TensorView q = h.zeros(DType::kBF16, {kPoolRows, c.num_heads, c.head_dim});
  const TensorView codes = h.zeros(DType::kE4M3, {kPoolRows, c.head_dim});
  const TensorView scales = h.zeros(DType::kE8M0, {kPoolRows, c.head_dim / 32});
  for (const int64_t rows : kRowCounts) {
    const auto make = [&](int64_t set) -> ops::QkvParams {
      return {.x = in_turn(x, set, rows),
              .position = in_turn(position, set, rows),
              .wq_a = in_turn(wq_a, set),
              .q_norm = norm,
              .wq_b = in_turn(wq_b, set),
              .wkv = in_turn(wkv, set),
              .kv_norm = norm.slice(0, c.head_dim),
              .rope = rope,
              .eps = c.rms_eps,
              .r = in_turn(r, set, rows),
              .q = in_turn(q, set, rows),
              .window_codes = in_turn(codes, set, rows),
              .window_scales = in_turn(scales, set, rows)};
    };
    const double library_us =
        h.library_us({{.outputs = c.q_lora_rank + c.head_dim, .columns = d, .rows = rows},
                      {.outputs = size, .columns = c.q_lora_rank, .rows = rows}});
    h.measure<ops::QkvParams>("qkv", rows, make, cuda::qkv, {.library_us = library_us});
  }
}

void output_projection(Harness& h) {
  if (!h.wants("output_projection")) return;
  const MemoryScope scope(h);
  const checkpoint::ModelConfig& c = h.config();
  const int64_t inner = c.o_groups * c.o_lora_rank;
  const int64_t group_columns = c.num_heads / c.o_groups * c.head_dim;
  const auto wo_a = h.random_weights(DType::kE4M3, inner, group_columns);
  const auto wo_b = h.random_weights(DType::kE4M3, c.hidden_size, inner);
  const TensorView o = h.random(DType::kBF16, {kPoolRows, c.num_heads, c.head_dim});
  const TensorView y = h.zeros(DType::kBF16, {kPoolRows, c.hidden_size});
  for (const int64_t rows : kRowCounts) {
    const auto make = [&](int64_t set) -> ops::OutputProjectionParams {
      return {.o = in_turn(o, set, rows),
              .groups = c.o_groups,
              .wo_a = in_turn(wo_a, set),
              .wo_b = in_turn(wo_b, set),
              .y = in_turn(y, set, rows)};
    };
    const double library_us = h.library_us(
        {{.outputs = c.o_lora_rank, .columns = group_columns, .rows = rows, .batch = c.o_groups},
         {.outputs = c.hidden_size, .columns = inner, .rows = rows}});
    h.measure<ops::OutputProjectionParams>("output_projection", rows, make, cuda::output_projection,
                                           {.library_us = library_us});
  }
}

void route(Harness& h) {
  if (!h.wants("route")) return;
  const MemoryScope scope(h);
  const checkpoint::ModelConfig& c = h.config();
  const auto gates = h.random_weights(DType::kBF16, c.num_experts, c.hidden_size);
  const TensorView x = h.random(DType::kBF16, {kPoolRows, c.hidden_size});
  const TensorView bias = h.zeros(DType::kF32, {c.num_experts});
  const TensorView experts = h.zeros(DType::kI32, {kPoolRows, c.experts_per_token});
  const TensorView weights = h.zeros(DType::kF32, {kPoolRows, c.experts_per_token});
  for (const int64_t rows : kRowCounts) {
    const auto make = [&](int64_t set) -> ops::RouteParams {
      return {.x = in_turn(x, set, rows),
              .gate = in_turn(gates, set).weight,
              .bias = bias,
              .scaling = c.routed_scaling_factor,
              .experts = in_turn(experts, set, rows),
              .weights = in_turn(weights, set, rows),
              .trace_scores = {}};
    };
    h.measure<ops::RouteParams>("route", rows, make, cuda::route);
  }
}

/// Different experts for every row, drawn alike.
Tensor choose_experts(std::mt19937& random, int64_t rows, int64_t num_experts, int64_t choices) {
  Tensor ids(DType::kI32, {rows, choices});
  for (int64_t b = 0; b < rows; ++b) {
    const std::span<int32_t> row(ids.view().row<int32_t>(b), static_cast<size_t>(choices));
    for (size_t i = 0; i < row.size();) {
      row[i] = static_cast<int32_t>(random() % static_cast<uint64_t>(num_experts));
      if (std::ranges::count(row.first(i), row[i]) == 0) ++i;
    }
  }
  return ids;
}

ops::ExpertWeights random_expert(Harness& h, DType dtype) {
  const int64_t width = h.config().moe_intermediate_size;
  const int64_t d = h.config().hidden_size;
  return {.w1 = h.random_weight(dtype, width, d),
          .w3 = h.random_weight(dtype, width, d),
          .w2 = h.random_weight(dtype, d, width)};
}

/// All experts in FP4 are many times the L2 cache. Bytes: of the experts that a set really chooses.
void experts(Harness& h) {
  if (!h.wants("experts")) return;
  const MemoryScope scope(h);
  const checkpoint::ModelConfig& c = h.config();
  constexpr int64_t kChoices = 4;  // sets of chosen experts
  std::vector<ops::ExpertWeights> routed;
  routed.reserve(static_cast<size_t>(c.num_experts));
  for (int64_t e = 0; e < c.num_experts; ++e) routed.push_back(random_expert(h, DType::kE2M1x2));
  const ops::ExpertWeights shared = random_expert(h, DType::kE4M3);
  const TensorView x = h.random(DType::kBF16, {kPoolRows, c.hidden_size});
  const TensorView weights = h.random(DType::kF32, {kPoolRows, c.experts_per_token});
  const TensorView slot_rows =
      h.zeros(DType::kBF16, {kPoolRows, c.experts_per_token, c.hidden_size});
  const TensorView shared_rows = h.zeros(DType::kBF16, {kPoolRows, c.hidden_size});
  std::mt19937 random(5);
  for (const int64_t rows : kRowCounts) {
    std::vector<TensorView> chosen;
    ops::Cost mean;
    const auto params = [&](const TensorView& ids, int64_t set) -> ops::ExpertsParams {
      return {.x = in_turn(x, set, rows),
              .experts = ids,
              .weights = in_turn(weights, set, rows),
              .routed = routed,
              .shared = shared,
              .limit = c.swiglu_limit,
              .slot_rows = in_turn(slot_rows, set, rows),
              .shared_rows = in_turn(shared_rows, set, rows)};
    };
    for (int64_t set = 0; set < kChoices; ++set) {
      const Tensor ids = choose_experts(random, rows, c.num_experts, c.experts_per_token);
      const ops::Cost cost = ops::cost_of(params(ids, set));
      mean.bytes += cost.bytes / kChoices;
      mean.operations += cost.operations / kChoices;
      chosen.push_back(h.upload(ids));
    }
    const auto make = [&](int64_t set) { return params(in_turn(chosen, set), set); };
    h.measure<ops::ExpertsParams>("experts", rows, make, cuda::experts, {.cost = mean});
  }
}

/// The library's part: the product with the head.
void logits(Harness& h) {
  if (!h.wants("logits")) return;
  const MemoryScope scope(h);
  const checkpoint::ModelConfig& c = h.config();
  const TensorView head = h.random(DType::kBF16, {c.vocab_size, c.hidden_size});
  const TensorView streams = h.random(DType::kBF16, {kMaxDecodeRows, c.hc_mult, c.hidden_size});
  const TensorView pre = h.random(DType::kF32, {kMaxDecodeRows, c.hc_mult});
  const TensorView norm = h.random(DType::kBF16, {c.hidden_size});
  const TensorView out = h.zeros(DType::kF32, {kMaxDecodeRows, c.vocab_size});
  for (const int64_t rows : kRowCounts) {
    if (rows > kMaxDecodeRows) break;
    const auto make = [&](int64_t) -> ops::LogitsParams {
      return {.streams = streams.slice(0, rows),
              .pre = pre.slice(0, rows),
              .norm = norm,
              .head = head,
              .eps = c.rms_eps,
              .logits = out.slice(0, rows),
              .trace_collapse = {},
              .trace_norm = {}};
    };
    const double library_us =
        h.library_us({{.outputs = c.vocab_size, .columns = c.hidden_size, .rows = rows}});
    h.measure<ops::LogitsParams>("logits", rows, make, cuda::logits, {.library_us = library_us});
  }
}

}  // namespace

void measure_products(Harness& harness) {
  linears(harness);
  qkv(harness);
  output_projection(harness);
  route(harness);
  experts(harness);
  logits(harness);
}

}  // namespace deepinfer::bench
