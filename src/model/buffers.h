#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "model/forward.h"

namespace deepinfer::model {

/// The activations of a step, allocated once for the largest. Every accessor returns the first n
/// rows.
struct Model::Buffers {
  Buffers(const checkpoint::ModelConfig& c, ops::Backend& backend, const StepLimits& limits)
      : candidate_block_size_(c.candidate_block_size) {
    const int64_t b = limits.max_rows;
    const DType act = ops::activation_dtype(backend.numerics());
    const int64_t ngram = c.engram_layers.empty() ? 1 : c.engram_max_ngram;
    const auto targets = static_cast<int64_t>(c.dspark_target_layers.size());
    const auto make = [&](DType dtype, const Shape& shape) {
      return backend.allocate(dtype, shape);
    };
    token_ = make(DType::kI32, {b});
    position_ = make(DType::kI64, {b});
    slot_ = make(DType::kI32, {b});
    role_ = make(DType::kU8, {b});
    span_begin_ = make(DType::kI32, {b});
    span_size_ = make(DType::kI32, {b});
    span_first_ = make(DType::kI64, {b});
    span_rows_ = make(DType::kI32, {b});
    context_ = make(DType::kI32, {b, ngram});
    streams_ = make(act, {b, c.hc_mult, c.hidden_size});
    first_stream_ = make(DType::kF32, {b, c.hc_mult});
    pre_ = make(DType::kF32, {b, c.hc_mult});
    post_ = make(DType::kF32, {b, c.hc_mult});
    comb_ = make(DType::kF32, {b, c.hc_mult, c.hc_mult});
    x_ = make(act, {b, c.hidden_size});
    r_ = make(act, {b, c.q_lora_rank});
    q_ = make(act, {b, c.num_heads, c.head_dim});
    window_codes_ = make(DType::kE4M3, {b, c.head_dim});
    window_scales_ = make(DType::kE8M0, {b, c.head_dim / 32});
    selected_ = make(DType::kI32, {b, std::max<int64_t>(c.index_topk, 1)});
    num_selected_ = make(DType::kI32, {b});
    candidate_blocks_ = make(DType::kI32, {b, std::max<int64_t>(c.candidate_topk_blocks, 1)});
    candidate_count_ = make(DType::kI32, {b});
    o_ = make(act, {b, c.num_heads, c.head_dim});
    y_ = make(act, {b, c.hidden_size});
    experts_ = make(DType::kI32, {b, c.experts_per_token});
    expert_weights_ = make(DType::kF32, {b, c.experts_per_token});
    slot_rows_ = make(act, {b, c.experts_per_token, c.hidden_size});
    shared_rows_ = make(act, {b, c.hidden_size});
    taps_ = make(act, {targets, b, c.hidden_size});
    logits_ = make(DType::kF32, {limits.max_logit_rows, c.vocab_size});
    fill_first_stream(backend, b, c.hc_mult);
  }

  ops::RowBatch rows(int64_t n) const {
    return {.token = first(token_, n),
            .position = first(position_, n),
            .slot = first(slot_, n),
            .role = first(role_, n),
            .span_begin = first(span_begin_, n),
            .span_size = first(span_size_, n),
            .span_first = first(span_first_, n),
            .span_rows = first(span_rows_, n),
            .context = first(context_, n)};
  }
  TensorView streams(int64_t n) const { return first(streams_, n); }
  TensorView first_stream(int64_t n) const { return first(first_stream_, n); }
  TensorView pre(int64_t n) const { return first(pre_, n); }
  TensorView post(int64_t n) const { return first(post_, n); }
  TensorView comb(int64_t n) const { return first(comb_, n); }
  TensorView x(int64_t n) const { return first(x_, n); }
  TensorView r(int64_t n) const { return first(r_, n); }
  TensorView q(int64_t n) const { return first(q_, n); }
  TensorView window_codes(int64_t n) const { return first(window_codes_, n); }
  TensorView window_scales(int64_t n) const { return first(window_scales_, n); }
  TensorView selected(int64_t n) const { return first(selected_, n); }
  TensorView num_selected(int64_t n) const { return first(num_selected_, n); }
  ops::CandidateBlocks candidates(int64_t n) const {
    return {.blocks = first(candidate_blocks_, n),
            .count = first(candidate_count_, n),
            .block_size = candidate_block_size_};
  }
  TensorView o(int64_t n) const { return first(o_, n); }
  TensorView y(int64_t n) const { return first(y_, n); }
  TensorView experts(int64_t n) const { return first(experts_, n); }
  TensorView expert_weights(int64_t n) const { return first(expert_weights_, n); }
  TensorView slot_rows(int64_t n) const { return first(slot_rows_, n); }
  TensorView shared_rows(int64_t n) const { return first(shared_rows_, n); }
  TensorView tap(int64_t target, int64_t n) const { return taps_.view().at(target).slice(0, n); }
  TensorView logits(int64_t n) const { return first(logits_, n); }

 private:
  static TensorView first(const Tensor& tensor, int64_t n) { return tensor.view().slice(0, n); }

  /// (1, 0, …, 0): how the model's very first site collapses (spec/model.md §2).
  void fill_first_stream(ops::Backend& backend, int64_t rows, int64_t hc_mult) {
    const Tensor host(DType::kF32, {rows, hc_mult});
    for (int64_t row = 0; row < rows; ++row) host.view().row<float>(row)[0] = 1;
    backend.copy(host, first_stream_);
  }

  int64_t candidate_block_size_;
  Tensor token_, position_, slot_, role_, span_begin_, span_size_, span_first_, span_rows_,
      context_;
  Tensor streams_, first_stream_, pre_, post_, comb_, x_, r_, q_, window_codes_, window_scales_;
  Tensor selected_, num_selected_, candidate_blocks_, candidate_count_, o_, y_;
  Tensor experts_, expert_weights_, slot_rows_, shared_rows_, taps_, logits_;
};

}  // namespace deepinfer::model
