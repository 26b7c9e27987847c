// Every stage of a layer from its golden input, with the weights of a small random checkpoint: a
// last-bit difference cannot spread from stage to stage. Tolerances: tests/data/README.md,
// "Stages".
#include <algorithm>
#include <array>

#include "ops/reference/common.h"
#include "ops/rope_table.h"
#include "tensor/quantize.h"
#include "tests/ops/stage_test.h"
#include "tests/support/compare.h"

namespace deepinfer::ops {
namespace {

using testing::close_by_row;
using testing::few_changed;
using testing::Golden;

class Stages : public StageTest {
 protected:
  TensorView embedded();
  TensorView entry_streams();
  void add_engram(const TensorView& streams);
  void check_site(const std::string& site, const TensorView& streams, const TensorView& pre_prev,
                  float tolerance);

  static constexpr int64_t kStreams = 4;
};

TensorView Stages::embedded() {
  std::vector<int32_t> tokens;
  for (const int64_t id : select_rows(trace_->ints("ids"), trace_->shape("ids"))) {
    tokens.push_back(static_cast<int32_t>(id));
  }
  const EmbedParams p{.token = operands_.put_i32(tokens, {num_rows()}),
                      .table = plain("embed.weight"),
                      .streams = operands_.zeros_act({num_rows(), kStreams, d_})};
  backend_->embed(p);
  return p.streams;
}

/// The streams at the entry of the layer's attention site.
TensorView Stages::entry_streams() {
  const TensorView streams =
      layer_ == 0 ? embedded()
                  : act(fmt::format("layers.{}.streams", layer_ - 1), {num_rows(), kStreams, d_});
  if (weights_->has(in_layer("engram.wkv.weight"))) add_engram(streams);
  return streams;
}

/// The Engram write with golden table rows: one position at a time, with a hash of 0 and the rows
/// as offsets.
void Stages::add_engram(const TensorView& streams) {
  const Golden exact(model_->exact_trace);         // the rows are the same in both modes
  const Shape shape = exact.shape("engram_rows");  // [S, Engram layers, C]
  const std::vector<int64_t> table_rows = select_rows(exact.ints("engram_rows"), shape);
  const auto columns = static_cast<size_t>(shape[2]);
  const auto index = static_cast<size_t>(std::ranges::find(model_->engram_layers, layer_) -
                                         model_->engram_layers.begin());
  const auto rows_at = [&](int64_t b) {
    const size_t first = (static_cast<size_t>(b * shape[1]) + index) * columns;
    return std::span(table_rows).subspan(first, columns);
  };
  QuantView table = fp8("engram.embed");
  table.scale_rows = 1;
  const TensorView gates = operands_.zeros(DType::kF32, {num_rows(), kStreams});
  const std::vector<int64_t> ones(columns, 1);
  for (int64_t b = 0; b < num_rows(); ++b) {
    backend_->engram({.context = operands_.put_i32(std::array<int32_t, 2>{0, -1}, {1, 2}),
                      .token_map = operands_.zeros(DType::kI32, {1}),
                      .multipliers = operands_.zeros(DType::kI64, {2}),
                      .primes = operands_.put(testing::to_tensor(ones, {shape[2]})),
                      .offsets = operands_.put(testing::to_tensor(rows_at(b), {shape[2]})),
                      .table = table,
                      .wkv = fp8("engram.wkv"),
                      .q_weight = plain(in_layer("engram.q_weight")),
                      .k_weight = plain(in_layer("engram.k_weight")),
                      .eps = 1e-20F,
                      .streams = streams.slice(b, 1),
                      .trace_rows = {},
                      .trace_gate = gates.slice(b, 1)});
  }
  expect_f32(gates, in_layer("engram_gate"), 1e-4F);
  expect_act(streams, in_layer("engram_out"));
}

/// site_begin of "attn" or "ffn": coefficients and the sub-layer's input.
void Stages::check_site(const std::string& site, const TensorView& streams,
                        const TensorView& pre_prev, float tolerance) {
  const std::string hc = in_layer("hc_" + site);
  const SiteBeginParams p{.streams = streams,
                          .pre_prev = pre_prev,
                          .fn = plain(hc + "_fn"),
                          .base = plain(hc + "_base"),
                          .scale = plain(hc + "_scale"),
                          .norm = plain(in_layer(site + "_norm.weight")),
                          .eps = 1e-20F,
                          .hc_eps = 1e-6F,
                          .sinkhorn_iterations = model_->sinkhorn_iterations,
                          .x = operands_.zeros_act({num_rows(), d_}),
                          .pre = operands_.zeros(DType::kF32, {num_rows(), kStreams}),
                          .post = operands_.zeros(DType::kF32, {num_rows(), kStreams}),
                          .comb = operands_.zeros(DType::kF32, {num_rows(), kStreams, kStreams})};
  backend_->site_begin(p);
  expect_act(p.x, in_layer(site + "_in"));
  expect_f32(p.pre, in_layer(site + "_pre"), tolerance);
  expect_f32(p.post, in_layer(site + "_post"), tolerance);
  expect_f32(p.comb, in_layer(site + "_comb"), tolerance);
}

TEST_P(Stages, StreamsMatchTraces) {
  for_each_layer([&] {
    const TensorView streams = entry_streams();
    std::vector<float> first(static_cast<size_t>(num_rows() * kStreams));
    for (size_t i = 0; i < first.size(); i += kStreams) first[i] = 1;
    const Shape coefficients = {num_rows(), kStreams};
    const TensorView pre_prev =
        layer_ == 0 ? operands_.put_f32(first, coefficients)
                    : f32(fmt::format("layers.{}.ffn_pre", layer_ - 1), coefficients);
    check_site("attn", streams, pre_prev, 1e-4F);
    const auto end = [&](const std::string& site) {
      backend_->site_end({.y = act(in_layer(site + "_out"), {num_rows(), d_}),
                          .post = f32(in_layer(site + "_post"), coefficients),
                          .comb = f32(in_layer(site + "_comb"), {num_rows(), kStreams, kStreams}),
                          .streams = streams});
    };
    end("attn");
    // The streams in between are not in the traces; recomputed ones cost a digit.
    check_site("ffn", streams, f32(in_layer("attn_pre"), coefficients), 1e-3F);
    end("ffn");
    expect_act(streams, in_layer("streams"));
  });
}

TEST_P(Stages, ProjectionsMatchTraces) {
  for_each_layer([&] {
    if (!has(in_layer("window_kv"))) return;
    const int64_t heads = weights_->shape(in_layer("attn.attn_sink"))[0];
    const int64_t head_dim = weights_->shape(in_layer("attn.wkv.weight"))[0];
    const int64_t rank = weights_->shape(in_layer("attn.wq_a.weight"))[0];
    const QkvParams p{.x = act(in_layer("attn_in"), {num_rows(), d_}),
                      .position = operands_.put(testing::to_tensor(rows_, {num_rows()})),
                      .wq_a = fp8("attn.wq_a"),
                      .q_norm = plain(in_layer("attn.q_norm.weight")),
                      .wq_b = fp8("attn.wq_b"),
                      .wkv = fp8("attn.wkv"),
                      .kv_norm = plain(in_layer("attn.kv_norm.weight")),
                      .rope = rope(),
                      .eps = 1e-20F,
                      .r = operands_.zeros_act({num_rows(), rank}),
                      .q = operands_.zeros_act({num_rows(), heads, head_dim}),
                      .window_codes = operands_.zeros(DType::kE4M3, {num_rows(), head_dim}),
                      .window_scales = operands_.zeros(DType::kE8M0, {num_rows(), head_dim / 32})};
    backend_->qkv(p);
    if (has(in_layer("q"))) expect_act(p.q, in_layer("q"));
    std::vector<float> keys(static_cast<size_t>(num_rows() * head_dim));
    dequantize_fp8(operands_.get(p.window_codes).as<uint8_t>(),
                   operands_.get(p.window_scales).as<uint8_t>(), keys);
    // Quantised in both modes: a last-bit difference may move a code.
    EXPECT_TRUE(few_changed(keys, at_rows(in_layer("window_kv")), head_dim, 0.01, 0.05F));
  });
}

TEST_P(Stages, OutputProjectionMatchesTraces) {
  for_each_layer([&] {
    if (!has(in_layer("attn_core"))) return;
    const Shape core = trace_->shape(in_layer("attn_core@rows"));
    // The trace has the heads before the inverse rotation.
    std::vector<float> o = at_rows(in_layer("attn_core"));
    const reference::Context context{GetParam().numerics, &pool_};
    const Tensor inv_freq = operands_.get(rope().inv_freq);
    for (int64_t i = 0; i < core[0] * core[1]; ++i) {
      reference::rotate(context, reference::row_of(o, i, static_cast<size_t>(core[2])),
                        {inv_freq.view()}, rows_[static_cast<size_t>(i / core[1])], true);
    }
    const OutputProjectionParams p{.o = operands_.put_act(o, core),
                                   .groups = 2,
                                   .wo_a = fp8("attn.wo_a"),
                                   .wo_b = fp8("attn.wo_b"),
                                   .y = operands_.zeros_act({num_rows(), d_})};
    backend_->output_projection(p);
    expect_act(p.y, in_layer("attn_out"), 0.03);
  });
}

TEST_P(Stages, ExpertsMatchTraces) {
  for_each_layer([&] {
    constexpr int64_t kChosen = 2;
    const TensorView gate = plain(in_layer("ffn.gate.weight"));
    const RouteParams route{.x = act(in_layer("ffn_in"), {num_rows(), d_}),
                            .gate = gate,
                            .bias = plain(in_layer("ffn.gate.bias")),
                            .scaling = model_->routed_scaling,
                            .experts = operands_.zeros(DType::kI32, {num_rows(), kChosen}),
                            .weights = operands_.zeros(DType::kF32, {num_rows(), kChosen}),
                            .trace_scores = {}};
    backend_->route(route);
    const std::string idx = in_layer("router_idx");
    EXPECT_EQ(operands_.ints(route.experts), select_rows(trace_->ints(idx), trace_->shape(idx)));
    expect_f32(route.weights, in_layer("router_weights"), 1e-4F);

    const auto network = [&](const std::string& name, bool is_fp4) {
      const auto weight = [&](const char* part) {
        const std::string full = fmt::format("ffn.{}.{}", name, part);
        return is_fp4 ? fp4(full) : fp8(full);
      };
      return ExpertWeights{weight("w1"), weight("w3"), weight("w2")};
    };
    std::vector<ExpertWeights> routed;
    for (int64_t e = 0; e < gate.dim(0); ++e) {
      routed.push_back(network(fmt::format("experts.{}", e), true));
    }
    const ExpertsParams experts{.x = route.x,
                                .experts = route.experts,
                                .weights = route.weights,
                                .routed = routed,
                                .shared = network("shared_experts", false),
                                .limit = model_->swiglu_limit,
                                .slot_rows = operands_.zeros_act({num_rows(), kChosen, d_}),
                                .shared_rows = operands_.zeros_act({num_rows(), d_})};
    backend_->experts(experts);
    const CombineParams combine{.experts = route.experts,
                                .slot_rows = experts.slot_rows,
                                .shared_rows = experts.shared_rows,
                                .y = operands_.zeros_act({num_rows(), d_})};
    backend_->combine(combine);
    expect_act(combine.y, in_layer("ffn_out"));
  });
}

TEST_P(Stages, LogitsMatchTraces) {
  for (const StageModel& model : suite().models) {
    SCOPED_TRACE(model.name);
    open(model);
    layer_ = model.num_layers - 1;
    const TensorView head = plain("head.weight");
    const LogitsParams p{.streams = act(in_layer("streams"), {num_rows(), kStreams, d_}),
                         .pre = f32(in_layer("ffn_pre"), {num_rows(), kStreams}),
                         .norm = plain("norm.weight"),
                         .head = head,
                         .eps = 1e-20F,
                         .logits = operands_.zeros(DType::kF32, {num_rows(), head.dim(0)}),
                         .trace_collapse = operands_.zeros(DType::kF32, {num_rows(), d_}),
                         .trace_norm = operands_.zeros(DType::kF32, {num_rows(), d_})};
    backend_->logits(p);
    expect_act(p.trace_collapse, "final_collapse");
    expect_act(p.trace_norm, "final_norm");
    // A flipped bf16 of the norm moves all logits of a row by up to 2^-9 of its largest.
    expect_f32(p.logits, "logits", 2e-3F);
  }
}

TEST_P(Stages, TapMatchesTraces) {
  for (const StageModel& model : suite().models) {
    SCOPED_TRACE(model.name);
    open(model);
    const auto targets = static_cast<int64_t>(model.target_layers.size());
    if (targets == 0) continue;
    // Each target writes its slice of the concatenation.
    const TensorView hidden = operands_.zeros_act({num_rows(), targets, d_});
    for (int64_t i = 0; i < targets; ++i) {
      layer_ = model.target_layers[static_cast<size_t>(i)];
      backend_->tap({.streams = entry_streams(), .out = hidden.select(1, i)});
    }
    expect_act(operands_.floats(hidden), targets * d_, "main_hidden");
  }
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Stages);
INSTANTIATE_TEST_SUITE_P(Backends, Stages, ::testing::ValuesIn(suite().backends), case_name);

}  // namespace
}  // namespace deepinfer::ops
