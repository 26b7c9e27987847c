#pragma once

#include <cstdint>

#include "cpu/attention_task.h"
#include "cpu/index_task.h"
#include "tensor/formats.h"

namespace deepinfer::cpu {

/// Most residual streams (hc_mult; the configuration allows no more).
inline constexpr int64_t kMaxStreams = 8;

/// The mix coefficients of one row (spec/model.md §2).
struct MixTask {
  const float* a;  // [2m + m²]: fn · flatten(S)
  float mean;      // of flatten(S)²
  const float* base;
  const float* scale;  // [3]
  int64_t streams;     // m
  float eps;
  float hc_eps;
  int64_t iterations;
  float* pre;   // [m]
  float* post;  // [m]
  float* comb;  // [m, m]
};

/// Engram's write into one stream (spec/model.md §7).
struct GateTask {
  const BFloat16* key;    // [d]
  const BFloat16* value;  // [d]
  const float* weight;    // [d]: q_weight ⊙ k_weight
  int64_t d;
  float eps;
  bool dead;         // the gate is 0
  BFloat16* stream;  // [d], in and out
};

/// The functions of kernels/math.h.
enum class Function : uint8_t { kExp, kLog, kLog1p, kSigmoid, kSoftplus };

/// Kernels on rows: everything but products. Fields are of one row unless they say otherwise.
struct RowKernels {
  /// y[i] = function(x[i]): what tests measure the functions by.
  void (*evaluate)(Function function, const float* x, int64_t n, float* y);
  /// Σ x².
  float (*sum_squares)(const BFloat16* x, int64_t n);
  /// rms(x; w) → bf16; out may be x.
  void (*rms_norm)(const BFloat16* x, const BFloat16* w, int64_t n, float eps, BFloat16* out);
  void (*rms_norm_f32)(const BFloat16* x, const float* w, int64_t n, float eps, BFloat16* out);
  /// cos and sin [pairs] of RoPE at a position; `sign` -1: to rotate back.
  void (*rotation)(int64_t position, const float* inv_freq, int64_t pairs, double sign,
                   float* cosine, float* sine);
  /// Rotates 2·pairs channels in place → bf16; cosine and sine have room for pairs rounded up
  /// to 16.
  void (*rotate)(BFloat16* x, const float* cosine, const float* sine, int64_t pairs);
  /// The quantisers of spec/model.md §6.
  void (*quantize_fp8)(const BFloat16* x, int64_t n, uint8_t* codes, uint8_t* scales);
  void (*quantize_fp4_index)(const BFloat16* x, int64_t n, uint8_t* codes, uint8_t* scales);
  void (*quantize_fp4_kv)(const BFloat16* x, int64_t n, uint8_t* codes, uint8_t* scales);
  /// Σ_j coefficients[j] · streams[j] → bf16, streams [m, d].
  void (*collapse)(const BFloat16* streams, int64_t m, int64_t d, const float* coefficients,
                   BFloat16* out);
  void (*mix)(const MixTask& task);
  /// streams[k] ← post[k] · y + Σ_j comb[j][k] · streams[j], [m, d].
  void (*expand)(const BFloat16* y, const float* post, const float* comb, int64_t m, int64_t d,
                 BFloat16* streams);
  /// Mean of the streams [m, d] → bf16.
  void (*mean_streams)(const BFloat16* streams, int64_t m, int64_t d, BFloat16* out);
  /// Σ softmax(g) ⊙ u over two tokens, channel by channel, → bf16. A token is u [n], then g [n].
  void (*pool_pair)(const float* even_u, const float* even_g, const float* odd_u,
                    const float* odd_g, int64_t n, BFloat16* out);
  /// Returns the gate.
  float (*gate)(const GateTask& task);

  void (*attend)(const AttentionTask& task);

  void (*pack_query)(const uint8_t* codes, const uint8_t* scales, const IndexShape& shape,
                     const IndexQuery& out);
  void (*pack_keys)(const uint8_t* const* codes, const uint8_t* const* scales, int count,
                    int64_t dim, const IndexKeys& out);
  void (*score_keys)(const IndexQuery& query, const IndexKeys& keys, const IndexShape& shape,
                     float* scores);
  /// Places of 16·n scores that are above `bound`, ascending; returns how many.
  int64_t (*find_above)(const float* scores, int64_t n, float bound, int32_t* places);

  /// The arithmetic of drawing tokens: ops::SampleMath.
  double (*exp_double)(double x);
  double (*gumbel_noise)(uint32_t word);
  float (*largest)(const float* logits, int64_t n);
  double (*log_sum_exp)(const float* logits, int64_t n, float max);

  /// What the machine is measured with: kernels/limits.h.
  float (*read_all)(const uint8_t* bytes, int64_t n);
  double (*multiply_add)(int64_t rounds);
};

}  // namespace deepinfer::cpu
