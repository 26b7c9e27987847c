#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "cuda/arena.h"
#include "ops/moe.h"

namespace deepinfer::cuda {

/// Addresses of one expert's weights on the device.
struct ExpertPointers {
  const uint8_t* w1;
  const uint8_t* w1_scale;
  const uint8_t* w3;
  const uint8_t* w3_scale;
  const uint8_t* w2;
  const uint8_t* w2_scale;
};

/// The experts of every layer as tables on the device, made when a layer runs for the first time
/// (or when its experts have moved). Owned by the engine thread.
class PointerTables {
 public:
  /// [E] on the device.
  const ExpertPointers* table(std::span<const ops::ExpertWeights> experts, cudaStream_t stream);

 private:
  struct Entry {
    std::vector<ExpertPointers> host;
    ExpertPointers* device = nullptr;
  };
  Arena arena_;
  std::unordered_map<const void*, Entry> entries_;  // by the address of the experts
};

}  // namespace deepinfer::cuda
