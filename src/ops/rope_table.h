#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace deepinfer::ops {

/// YaRN's numbers (spec/model.md §3).
struct YarnScaling {
  double factor = 1;
  double beta_fast = 32;
  double beta_slow = 1;
  int64_t original_max_positions = 65536;
};

/// inv_freq [rope_dim/2] of a layer's RoPE, exact to the bit as spec/model.md §3 writes it: plain
/// with base `theta`, or stretched by YaRN. `rope_dim` is even.
std::vector<float> rope_inv_freq(int64_t rope_dim, double theta,
                                 const std::optional<YarnScaling>& yarn = std::nullopt);

}  // namespace deepinfer::ops
