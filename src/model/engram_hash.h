#pragma once

#include <cstdint>
#include <vector>

#include "checkpoint/config.h"

namespace deepinfer::model {

/// The addressing of one Engram layer's table: nothing of it is stored in the checkpoint
/// (spec/checkpoint.md §5).
struct EngramHash {
  std::vector<int64_t> multipliers;  // [N]
  std::vector<int64_t> primes;       // [C], order 2 heads first
  std::vector<int64_t> offsets;      // [C]: exclusive running sum of primes
  int64_t num_rows = 0;              // Σ primes
};

/// One per entry of config.engram_layers.
std::vector<EngramHash> engram_hashes(const checkpoint::ModelConfig& config);

}  // namespace deepinfer::model
