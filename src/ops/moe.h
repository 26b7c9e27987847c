#pragma once

#include <span>

#include "ops/rows.h"

namespace deepinfer::ops {

enum class Scoring : uint8_t { kSqrtSoftplus, kSoftmax, kSigmoid };

/// Expert choice (spec/model.md §8): the k best of score + bias, weights from the scores alone.
struct RouteParams {
  TensorView x;     // [B, d] act: ffn_in
  TensorView gate;  // [E, d] bf16
  TensorView bias;  // [E] f32
  float temperature = 1;
  Scoring scoring = Scoring::kSqrtSoftplus;
  bool normalize = true;
  float scaling = 1;
  TensorView experts;       // [B, k] i32, out: best first, ties to the lowest id
  TensorView weights;       // [B, k] f32, out
  TensorView trace_scores;  // [B, E] f32: scores without bias; may be empty
};
void check(const RouteParams& params);

/// One SwiGLU feed-forward network as stored.
struct ExpertWeights {
  QuantView w1;  // [f, d]: gate
  QuantView w3;  // [f, d]: up
  QuantView w2;  // [d, f]
};

/// The chosen experts of every row and the shared expert (spec/model.md §8, §10 item 11). Every
/// (row, choice) gets its own bf16 result row, so that where an expert runs cannot change bits.
struct ExpertsParams {
  TensorView x;                           // [B, d] act: ffn_in
  TensorView experts;                     // [B, k] i32
  TensorView weights;                     // [B, k] f32
  std::span<const ExpertWeights> routed;  // [E] FP4
  ExpertWeights shared;                   // FP8
  float limit = 0;                        // swiglu_limit; 0: none
  TensorView slot_rows;                   // [B, k, d] act, out: result of choice i of the row
  TensorView shared_rows;                 // [B, d] act, out
};
void check(const ExpertsParams& params);

/// y = Σ slot rows by ascending expert id + shared row last, in fp32, rounded once.
struct CombineParams {
  TensorView experts;      // [B, k] i32
  TensorView slot_rows;    // [B, k, d] act
  TensorView shared_rows;  // [B, d] act
  TensorView y;            // [B, d] act, out
};
void check(const CombineParams& params);

}  // namespace deepinfer::ops
