#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "ops/backend.h"

namespace deepinfer::model {

/// mHC coefficients of one site (spec/model.md §2).
struct SiteWeights {
  TensorView fn;     // [2m + m², m·d] f32
  TensorView base;   // [2m + m²] f32
  TensorView scale;  // [3] f32
  TensorView norm;   // [d] bf16: attn_norm or ffn_norm
};

struct AttentionWeights {
  QuantView wq_a;      // [rq, d] FP8
  TensorView q_norm;   // [rq] bf16
  QuantView wq_b;      // [H·D, rq] FP8
  QuantView wkv;       // [D, d] FP8
  TensorView kv_norm;  // [D] bf16
  TensorView sink;     // [H] f32
  QuantView wo_a;      // [G·ro, H/G·D] FP8
  QuantView wo_b;      // [d, G·ro] FP8
};

/// KV sources only.
struct CompressorWeights {
  TensorView wkv;         // [D, d] bf16
  TensorView wgate;       // [D, d] bf16; empty at ratio 1
  TensorView norm;        // [D] bf16
  TensorView index_wk;    // [Di, D] bf16
  TensorView index_norm;  // [Di] bf16
};

/// Index sources only.
struct IndexerWeights {
  QuantView wq_b;           // [Hi·Di, rq] FP8
  TensorView weights_proj;  // [Hi, d] bf16
};

/// Engram layers only.
struct EngramWeights {
  QuantView table;      // [rows, w] FP8, rows gathered from the mapping
  QuantView wkv;        // [(m+1)·d, C·w] FP8
  TensorView q_weight;  // [m, d] bf16
  TensorView k_weight;  // [m, d] bf16
};

struct MoeWeights {
  TensorView gate;  // [E, d] bf16
  TensorView bias;  // [E] f32
  std::vector<ops::ExpertWeights> routed;
  ops::ExpertWeights shared;
};

struct LayerWeights {
  SiteWeights attention_site;
  AttentionWeights attention;
  CompressorWeights compressor;
  IndexerWeights indexer;
  EngramWeights engram;
  SiteWeights ffn_site;
  MoeWeights moe;
};

/// Every tensor of the text model as the backend's operations reach it, in its stored form. Views
/// into the checkpoint, which must outlive it.
struct ModelWeights {
  TensorView embed;  // [V, d] bf16
  std::vector<LayerWeights> layers;
  TensorView norm;  // [d] bf16
  TensorView head;  // [V, d] bf16
};

/// `show_progress`: a bar on stderr where copying to the backend takes over a second. Errors:
/// kResourceExhausted.
std::shared_ptr<const ModelWeights> bind_weights(const checkpoint::Checkpoint& checkpoint,
                                                 ops::Backend& backend, bool show_progress = false);

}  // namespace deepinfer::model
