#include "sampling/sample_row.h"

#include <algorithm>
#include <limits>
#include <random>

#include "base/philox.h"

namespace deepinfer::sampling {

uint64_t seed_of_choice(uint64_t seed, int64_t choice) {
  if (choice == 0) return seed;
  return mix64(seed + static_cast<uint64_t>(choice) * 0x9E3779B97F4A7C15);
}

uint64_t random_seed() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

ops::SampleRow sample_row(const SamplingParams& params, uint64_t seed, int32_t eos_token,
                          int64_t num_generated) {
  const bool no_end = !params.ignore_eos && num_generated < params.min_tokens;
  return {.seed = seed,
          .temperature = params.temperature,
          .top_p = params.top_p,
          .min_p = params.min_p,
          .top_k = std::max(params.top_k, 0),
          .repetition_penalty = params.repetition_penalty,
          .frequency_penalty = params.frequency_penalty,
          .presence_penalty = params.presence_penalty,
          .forced_token = -1,
          .banned_token = no_end ? eos_token : -1};
}

bool needs_bias(const SamplingParams& params, int64_t num_generated) {
  return !params.logit_bias.empty() ||
         (num_generated < params.min_tokens && !params.stop_token_ids.empty());
}

void fill_bias(const SamplingParams& params, int64_t num_generated, std::span<float> row) {
  std::ranges::fill(row, 0.0F);
  for (const auto& [id, bias] : params.logit_bias) row[static_cast<size_t>(id)] = bias;
  if (num_generated >= params.min_tokens) return;
  for (const int32_t id : params.stop_token_ids) {
    row[static_cast<size_t>(id)] = -std::numeric_limits<float>::infinity();
  }
}

}  // namespace deepinfer::sampling
