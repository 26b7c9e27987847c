#include "ops/rope_table.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace deepinfer::ops {

std::vector<float> rope_inv_freq(int64_t rope_dim, double theta,
                                 const std::optional<YarnScaling>& yarn) {
  DEEPINFER_CHECK(rope_dim >= 0 && rope_dim % 2 == 0, "rope_dim {}", rope_dim);
  const auto dim = static_cast<double>(rope_dim);
  std::vector<float> inv_freq;
  for (int64_t i = 0; i < rope_dim / 2; ++i) {
    const auto power = static_cast<float>(std::pow(theta, static_cast<double>(2 * i) / dim));
    inv_freq.push_back(1.0F / power);
  }
  if (!yarn) return inv_freq;

  // The channel that turns n times within the original context.
  const auto channel = [&](double turns) {
    const auto original = static_cast<double>(yarn->original_max_positions);
    return dim * std::log(original / (turns * 2 * std::numbers::pi)) / (2 * std::log(theta));
  };
  const auto low = static_cast<float>(std::max(std::floor(channel(yarn->beta_fast)), 0.0));
  const auto high = static_cast<float>(std::min(std::ceil(channel(yarn->beta_slow)), dim - 1));
  const auto factor = static_cast<float>(yarn->factor);
  for (size_t i = 0; i < inv_freq.size(); ++i) {
    const float ramp = (static_cast<float>(i) - low) / std::max(high - low, 0.001F);
    const float keep = 1.0F - std::clamp(ramp, 0.0F, 1.0F);
    inv_freq[i] = (inv_freq[i] / factor) * (1.0F - keep) + inv_freq[i] * keep;
  }
  return inv_freq;
}

}  // namespace deepinfer::ops
