#pragma once

#include "tests/support/golden.h"

/// Bit-for-bit checks against ops.safetensors (exact mode), small or large.
namespace deepinfer {

void check_number_formats(const testing::Golden& golden);
void check_cache_quantisers(const testing::Golden& golden);
void check_weight_formats(const testing::Golden& golden);

}  // namespace deepinfer
