#include "model/forward.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "model/buffers.h"
#include "model/engram_hash.h"
#include "ops/rope_table.h"

namespace deepinfer::model {

/// What one layer of one step works on.
struct Model::LayerContext {
  int64_t index;
  const LayerWeights& weights;
  int64_t rows_in;  // rows that reach the layer: they get keys and entries
  int64_t rows;     // rows that leave it: they get queries, attention and feed-forward
  cache::KvCache& cache;
  Trace* trace;

  std::string name(const char* tensor) const { return fmt::format("layers.{}.{}", index, tensor); }
};

namespace {

/// Copies numbers to backend memory that lives in `storage`.
template <typename T>
TensorView constant(ops::Backend& backend, std::vector<Tensor>& storage, DType dtype,
                    std::span<const T> values) {
  const auto count = static_cast<int64_t>(values.size());
  Tensor& tensor = storage.emplace_back(backend.allocate(dtype, {count}));
  backend.copy(TensorView(const_cast<T*>(values.data()), dtype, {count}), tensor);
  return tensor.view();
}

ops::Scoring to_ops(checkpoint::ScoringFunction scoring) {
  switch (scoring) {
    case checkpoint::ScoringFunction::kSqrtSoftplus:
      return ops::Scoring::kSqrtSoftplus;
    case checkpoint::ScoringFunction::kSoftmax:
      return ops::Scoring::kSoftmax;
    case checkpoint::ScoringFunction::kSigmoid:
      return ops::Scoring::kSigmoid;
  }
  return ops::Scoring::kSqrtSoftplus;
}

/// Position of `layer` in config.kv_source_layers.
int64_t source_index(const checkpoint::ModelConfig& config, int64_t layer) {
  const auto& sources = config.kv_source_layers;
  const auto found = std::ranges::find(sources, config.kv_source_of(layer));
  DEEPINFER_CHECK(found != sources.end(), "layer {} reads no KV source", layer);
  return found - sources.begin();
}

}  // namespace

cache::CacheShape Model::cache_shape(const checkpoint::ModelConfig& config) {
  cache::CacheShape shape;
  shape.num_layers = config.num_layers;
  shape.encoder_layers = config.kv_source_layers.empty() ? 0 : config.kv_source_layers.back() + 1;
  shape.window = config.window;
  shape.head_dim = config.head_dim;
  shape.index_head_dim = config.index_head_dim;
  for (const int32_t layer : config.kv_source_layers) {
    shape.source_ratios.push_back(config.ratio(layer));
  }
  shape.ngram = config.engram_layers.empty() ? 1 : config.engram_max_ngram;
  return shape;
}

Model::Model(const checkpoint::Checkpoint& checkpoint, ops::Backend& backend,
             std::span<const int32_t> token_map, const StepLimits& limits,
             std::shared_ptr<const ModelWeights> weights)
    : config_(checkpoint.config()),
      backend_(backend),
      limits_(limits),
      weights_(std::move(weights)) {
  const std::vector<float> main = ops::rope_inv_freq(config_.rope_head_dim, config_.rope_theta);
  const checkpoint::RopeScaling& scaling = config_.rope_scaling;
  const std::vector<float> compress = ops::rope_inv_freq(
      config_.rope_head_dim, config_.compress_rope_theta,
      ops::YarnScaling{.factor = scaling.factor,
                       .beta_fast = scaling.beta_fast,
                       .beta_slow = scaling.beta_slow,
                       .original_max_positions = scaling.original_max_positions});
  main_rope_.inv_freq = constant<float>(backend, constants_, DType::kF32, main);
  compress_rope_.inv_freq = constant<float>(backend, constants_, DType::kF32, compress);

  if (!config_.engram_layers.empty()) {
    DEEPINFER_CHECK(static_cast<int64_t>(token_map.size()) == config_.vocab_size,
                    "Engram token map of {} ids", token_map.size());
    token_map_ = constant<int32_t>(backend, constants_, DType::kI32, token_map);
    engram_pad_ = token_map[static_cast<size_t>(config_.engram_pad_token_id)];
    const std::vector<EngramHash> hashes = engram_hashes(config_);
    for (size_t i = 0; i < hashes.size(); ++i) {
      const auto add = [&](const std::vector<int64_t>& values) {
        return constant<int64_t>(backend, constants_, DType::kI64, values);
      };
      engram_multipliers_.push_back(add(hashes[i].multipliers));
      engram_primes_.push_back(add(hashes[i].primes));
      engram_offsets_.push_back(add(hashes[i].offsets));
    }
  }
  buffers_ = std::make_unique<Buffers>(config_, backend, limits);
}

Model::~Model() = default;

void Model::resolve(const Step& step, cache::KvCache& cache) {
  const auto count = static_cast<int64_t>(step.rows.size());
  DEEPINFER_CHECK(count <= limits_.max_rows && step.num_logit_rows <= limits_.max_logit_rows,
                  "a step of {} rows and {} logits", count, step.num_logit_rows);
  rows_ = buffers_->rows(count);
  backend_.resolve_rows({.plan = step.rows,
                         .span_begin = step.span_begin,
                         .span_size = step.span_size,
                         .span_rows = step.span_rows,
                         .slots = cache.slots(),
                         .out = rows_});
}

void Model::forward(const Step& step, cache::KvCache& cache, Trace* trace) {
  resolve(step, cache);
  const auto count = static_cast<int64_t>(step.rows.size());
  const TensorView streams = buffers_->streams(count);
  backend_.embed({.token = rows_.token, .table = weights_->embed, .streams = streams});
  backend_.copy(buffers_->first_stream(count), buffers_->pre(count));
  if (trace != nullptr) {
    trace->add("ids", rows_.token);
    trace->add("embed@rows", streams.select(1, 0));
  }

  for (size_t l = 0; l < weights_->layers.size() && step.rows_at_layer[l] > 0; ++l) {
    const bool is_last = l + 1 == weights_->layers.size();
    run_layer({.index = static_cast<int64_t>(l),
               .weights = weights_->layers[l],
               .rows_in = step.rows_at_layer[l],
               .rows = is_last ? step.num_logit_rows : step.rows_at_layer[l + 1],
               .cache = cache,
               .trace = trace});
  }
  if (trace != nullptr && !config_.dspark_target_layers.empty()) {
    std::vector<TensorView> taps;
    taps.reserve(config_.dspark_target_layers.size());
    for (size_t i = 0; i < config_.dspark_target_layers.size(); ++i) {
      taps.push_back(buffers_->tap(static_cast<int64_t>(i), count));
    }
    trace->add_joined("main_hidden", taps);
  }
  logits_ = buffers_->logits(step.num_logit_rows);
  if (step.num_logit_rows > 0) compute_logits(step.num_logit_rows, trace);
}

void Model::run_layer(const LayerContext& layer) {
  if (config_.engram_index(layer.index) >= 0) engram(layer);
  const auto& targets = config_.dspark_target_layers;
  const auto target = std::ranges::find(targets, static_cast<int32_t>(layer.index));
  if (layer.trace != nullptr && target != targets.end()) {
    backend_.tap({.streams = buffers_->streams(layer.rows_in),
                  .out = buffers_->tap(target - targets.begin(), layer.rows_in)});
  }
  attention(layer);
  if (layer.rows > 0) feed_forward(layer);
  if (layer.trace != nullptr) {
    layer.trace->add(layer.name("streams@rows"), buffers_->streams(layer.rows));
  }
}

void Model::engram(const LayerContext& layer) {
  const auto i = static_cast<size_t>(config_.engram_index(layer.index));
  const EngramWeights& weights = layer.weights.engram;
  const int64_t count = layer.rows_in;
  Tensor rows, gate;
  if (layer.trace != nullptr) {
    rows = layer.trace->allocate(DType::kI64, {count, engram_primes_[i].dim(0)});
    gate = layer.trace->allocate(DType::kF32, {count, config_.hc_mult});
  }
  backend_.engram({.context = rows_.context.slice(0, count),
                   .token_map = token_map_,
                   .pad = engram_pad_,
                   .multipliers = engram_multipliers_[i],
                   .primes = engram_primes_[i],
                   .offsets = engram_offsets_[i],
                   .table = weights.table,
                   .wkv = weights.wkv,
                   .q_weight = weights.q_weight,
                   .k_weight = weights.k_weight,
                   .eps = config_.rms_eps,
                   .streams = buffers_->streams(count),
                   .trace_rows = rows,
                   .trace_gate = gate});
  if (layer.trace != nullptr) {
    layer.trace->add_stacked("engram_rows", rows);
    layer.trace->add(layer.name("engram_gate"), gate);
    layer.trace->add(layer.name("engram_out@rows"), buffers_->streams(count));
  }
}

void Model::begin_site(const LayerContext& layer, const SiteWeights& site, int64_t num_rows,
                       const char* name) {
  const TensorView pre = buffers_->pre(num_rows);
  const TensorView post = buffers_->post(num_rows);
  const TensorView comb = buffers_->comb(num_rows);
  const TensorView x = buffers_->x(num_rows);
  backend_.site_begin({.streams = buffers_->streams(num_rows),
                       .pre_prev = pre,
                       .fn = site.fn,
                       .base = site.base,
                       .scale = site.scale,
                       .norm = site.norm,
                       .eps = config_.rms_eps,
                       .hc_eps = config_.hc_eps,
                       .sinkhorn_iterations = config_.hc_sinkhorn_iterations,
                       .x = x,
                       .pre = pre,
                       .post = post,
                       .comb = comb});
  if (layer.trace != nullptr) {
    const bool is_attention = std::string_view(name) == "attn";
    layer.trace->add(layer.name(is_attention ? "attn_in" : "ffn_in@rows"), x);
    layer.trace->add(layer.name(is_attention ? "attn_pre" : "ffn_pre"), pre);
    layer.trace->add(layer.name(is_attention ? "attn_post" : "ffn_post"), post);
    layer.trace->add(layer.name(is_attention ? "attn_comb" : "ffn_comb"), comb);
  }
}

void Model::attention(const LayerContext& layer) {
  const bool compressed = config_.ratio(layer.index) > 0;
  const AttentionWeights& weights = layer.weights.attention;
  const ops::Rope& rope = compressed ? compress_rope_ : main_rope_;
  const int64_t n = layer.rows;
  const int64_t rows_in = layer.rows_in;
  begin_site(layer, layer.weights.attention_site, rows_in, "attn");

  const TensorView q = buffers_->q(n);
  const TensorView codes = buffers_->window_codes(rows_in);
  const TensorView scales = buffers_->window_scales(rows_in);
  backend_.qkv({.x = buffers_->x(rows_in),
                .position = rows_.position.slice(0, rows_in),
                .wq_a = weights.wq_a,
                .q_norm = weights.q_norm,
                .wq_b = weights.wq_b,
                .wkv = weights.wkv,
                .kv_norm = weights.kv_norm,
                .rope = rope,
                .eps = config_.rms_eps,
                .r = buffers_->r(n),
                .q = q,
                .window_codes = codes,
                .window_scales = scales});
  if (compressed) compress_and_select(layer);

  Tensor core;
  if (layer.trace != nullptr) {
    core = layer.trace->allocate(DType::kF32, {n, config_.num_heads, config_.head_dim});
  }
  const ops::WindowRings& rings = layer.cache.rings(layer.index);
  ops::SparseAttentionParams params{.q = q,
                                    .rows = rows_,
                                    .slots = layer.cache.slots(),
                                    .window = config_.window,
                                    .rings = rings,
                                    .window_codes = codes,
                                    .window_scales = scales,
                                    .window_floor = {},
                                    .pages = {},
                                    .selected = {},
                                    .num_selected = {},
                                    .sink = weights.sink,
                                    .rope = rope,
                                    .out = buffers_->o(n),
                                    .trace_core = core};
  if (compressed) {
    params.pages = layer.cache.pages(source_index(config_, layer.index));
    params.selected = buffers_->selected(n);
    params.num_selected = buffers_->num_selected(n);
  }
  if (n > 0) backend_.sparse_attention(params);
  backend_.window_store(
      {.rows = rows_, .window_codes = codes, .window_scales = scales, .rings = rings});
  if (n == 0) return;
  backend_.output_projection({.o = params.out,
                              .groups = config_.o_groups,
                              .wo_a = weights.wo_a,
                              .wo_b = weights.wo_b,
                              .y = buffers_->y(n)});
  if (layer.trace != nullptr) {
    layer.trace->add(layer.name("q@rows"), q);
    layer.trace->add_window(layer.name("window_kv@rows"), codes, scales);
    layer.trace->add(layer.name("attn_core@rows"), core);
    layer.trace->add(layer.name("attn_out@rows"), buffers_->y(n));
  }
  backend_.site_end({.y = buffers_->y(n),
                     .post = buffers_->post(n),
                     .comb = buffers_->comb(n),
                     .streams = buffers_->streams(n)});
}

void Model::compress_and_select(const LayerContext& layer) {
  const int64_t source = source_index(config_, layer.index);
  const ops::CompressedPages& pages = layer.cache.pages(source);
  const int64_t n = layer.rows;
  const int64_t step_tokens = layer.rows_in;  // a traced step is one whole sequence
  const TensorView x = buffers_->x(layer.rows_in);
  if (config_.is_kv_source(layer.index)) {
    const CompressorWeights& weights = layer.weights.compressor;
    Tensor latent;
    if (layer.trace != nullptr)
      latent = layer.trace->allocate(DType::kF32, {x.dim(0), config_.head_dim});
    backend_.compress({.x = x,
                       .rows = rows_,
                       .slots = layer.cache.slots(),
                       .wkv = weights.wkv,
                       .wgate = weights.wgate,
                       .norm = weights.norm,
                       .index_wk = weights.index_wk,
                       .index_norm = weights.index_norm,
                       .rope = compress_rope_,
                       .eps = config_.rms_eps,
                       .pages = pages,
                       .pending = layer.cache.pending(source),
                       .trace_latent = latent});
    if (layer.trace != nullptr) {
      layer.trace->add_entry_rows(layer.name("latent@rows"), latent, pages.ratio);
      layer.trace->add_pages(layer.name(""), pages, layer.cache.slots(), step_tokens);
    }
  }
  if (n == 0 || !config_.is_index_source(layer.index)) return;

  const int32_t candidate_source = config_.candidate_source_layer;
  const ops::CandidateBlocks blocks = buffers_->candidates(n);
  ops::IndexSelectParams params{.x = buffers_->x(n),
                                .r = buffers_->r(n),
                                .rows = rows_,
                                .slots = layer.cache.slots(),
                                .wq_b = layer.weights.indexer.wq_b,
                                .weights_proj = layer.weights.indexer.weights_proj,
                                .rope = compress_rope_,
                                .pages = pages,
                                .restrict_to = {},
                                .publish = {},
                                .selected = buffers_->selected(n),
                                .num_selected = buffers_->num_selected(n),
                                .trace_query = {},
                                .trace_scores = {}};
  if (candidate_source >= 0 && layer.index == candidate_source) params.publish = blocks;
  if (candidate_source >= 0 && layer.index > candidate_source) params.restrict_to = blocks;
  const int64_t entries = step_tokens / pages.ratio;
  Tensor query, scores;
  if (layer.trace != nullptr) {
    query =
        layer.trace->allocate(DType::kF32, {n, config_.index_num_heads, config_.index_head_dim});
    scores = layer.trace->allocate(DType::kF32, {n, entries});
    params.trace_query = query;
    params.trace_scores = scores;
  }
  backend_.index_select(params);
  if (layer.trace == nullptr) return;
  layer.trace->add(layer.name("index_q@rows"), query);
  layer.trace->add(layer.name("index_scores"), scores);
  layer.trace->add_bits(layer.name("selected_bits"), params.selected, params.num_selected, 1,
                        entries);
  if (!params.publish.blocks.empty()) {
    layer.trace->add_bits(layer.name("candidates_bits"), blocks.blocks, blocks.count,
                          blocks.block_size, entries);
  }
}

void Model::feed_forward(const LayerContext& layer) {
  const int64_t n = layer.rows;
  const MoeWeights& moe = layer.weights.moe;
  begin_site(layer, layer.weights.ffn_site, n, "ffn");

  Tensor scores;
  if (layer.trace != nullptr) scores = layer.trace->allocate(DType::kF32, {n, config_.num_experts});
  backend_.route({.x = buffers_->x(n),
                  .gate = moe.gate,
                  .bias = moe.bias,
                  .temperature = config_.gate_temperature,
                  .scoring = to_ops(config_.scoring),
                  .normalize = config_.normalize_topk,
                  .scaling = config_.routed_scaling_factor,
                  .experts = buffers_->experts(n),
                  .weights = buffers_->expert_weights(n),
                  .trace_scores = scores});
  backend_.experts({.x = buffers_->x(n),
                    .experts = buffers_->experts(n),
                    .weights = buffers_->expert_weights(n),
                    .routed = moe.routed,
                    .shared = moe.shared,
                    .limit = config_.swiglu_limit,
                    .slot_rows = buffers_->slot_rows(n),
                    .shared_rows = buffers_->shared_rows(n)});
  backend_.combine({.experts = buffers_->experts(n),
                    .slot_rows = buffers_->slot_rows(n),
                    .shared_rows = buffers_->shared_rows(n),
                    .y = buffers_->y(n)});
  if (layer.trace != nullptr) {
    layer.trace->add(layer.name("router_scores"), scores);
    layer.trace->add(layer.name("router_idx"), buffers_->experts(n));
    layer.trace->add(layer.name("router_weights"), buffers_->expert_weights(n));
    layer.trace->add(layer.name("ffn_out@rows"), buffers_->y(n));
  }
  backend_.site_end({.y = buffers_->y(n),
                     .post = buffers_->post(n),
                     .comb = buffers_->comb(n),
                     .streams = buffers_->streams(n)});
}

void Model::compute_logits(int64_t num_rows, Trace* trace) {
  Tensor collapse, norm;
  if (trace != nullptr) {
    collapse = trace->allocate(DType::kF32, {num_rows, config_.hidden_size});
    norm = trace->allocate(DType::kF32, {num_rows, config_.hidden_size});
  }
  backend_.logits({.streams = buffers_->streams(num_rows),
                   .pre = buffers_->pre(num_rows),
                   .norm = weights_->norm,
                   .head = weights_->head,
                   .eps = config_.rms_eps,
                   .logits = logits_,
                   .trace_collapse = collapse,
                   .trace_norm = norm});
  if (trace != nullptr) {
    trace->add("final_collapse@rows", collapse);
    trace->add("final_norm@rows", norm);
    trace->add("logits", logits_);
  }
}

}  // namespace deepinfer::model
