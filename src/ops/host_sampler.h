#pragma once

#include <cstdint>
#include <span>

#include "ops/sample.h"
#include "ops/sample_filter.h"

namespace deepinfer::ops {

/// The arithmetic of drawing tokens in which backends may differ in the last digits.
struct SampleMath {
  /// e^x for x <= 0.
  double (*exp)(double x);
  /// gumbel_noise() of ops/noise.h.
  double (*gumbel_noise)(uint32_t word);
  /// The largest of n logits; NaN counts as -∞.
  float (*largest)(const float* logits, int64_t n);
  /// ln Σ exp(logit - max); an equal logit adds 1, NaN counts as -∞.
  double (*log_sum_exp)(const float* logits, int64_t n, float max);
};

/// The sample operation on row i, for backends whose memory is the host's. Allocates nothing.
/// `memory` has room for as many candidates as the vocabulary has tokens. Subnormals count: run it
/// with denormals on.
void sample_row_on_host(const SampleParams& params, int64_t i, const SampleMath& math,
                        std::span<Candidate> memory);

}  // namespace deepinfer::ops
