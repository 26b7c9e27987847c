#pragma once

#include <cstdint>
#include <span>

#include "deepinfer/sampling_params.h"
#include "ops/sample.h"

namespace deepinfer::sampling {

/// The seed of choice `choice` >= 0 of a request (spec/model.md §10 item 16).
uint64_t seed_of_choice(uint64_t seed, int64_t choice);

/// A seed for a request that brings none. Any thread.
uint64_t random_seed();

/// What the sample operation needs of valid parameters for the output's token number
/// `num_generated` (from 0). `eos_token`: -1 if the model has none.
ops::SampleRow sample_row(const SamplingParams& params, uint64_t seed, int32_t eos_token,
                          int64_t num_generated);

/// Whether fill_bias() has something to say about this token of the output.
bool needs_bias(const SamplingParams& params, int64_t num_generated);
/// A row of ops::SampleParams::bias, [V]: logit_bias, and -∞ for stop tokens before min_tokens. The
/// parameters are valid for V.
void fill_bias(const SamplingParams& params, int64_t num_generated, std::span<float> row);

}  // namespace deepinfer::sampling
