#pragma once

#include <array>
#include <cstdint>

#include "checkpoint/config.h"
#include "checkpoint/names.h"

namespace deepinfer::checkpoint {

/// Number and size of some tensors.
struct TensorTotal {
  int64_t count = 0;
  int64_t bytes = 0;
};

/// What running a model takes, computed from its configuration alone.
struct MemoryPlan {
  std::array<TensorTotal, kNumTensorKinds> kinds;  // by TensorKind
  TensorTotal total;
  int64_t resident_bytes = 0;  // every tensor but the Engram tables
  int64_t mapped_bytes = 0;    // Engram tables, gathered row by row
  double kv_bytes_per_token =
      0;                  // compressed KV and indexer keys of all KV sources (spec/model.md §6)
  int64_t ring_rows = 0;  // rows of a window ring: W + 16
  int64_t ring_row_bytes = 0;    // FP8 codes and scales of one row, and its position tag
  int64_t ring_bytes = 0;        // per request, backbone layers, with the open ratio-2 pairs
  int64_t draft_ring_bytes = 0;  // per request, draft stages
  int64_t snapshot_unit_bytes =
      0;  // half a ring snapshot: the rings up to the last KV source, or those above it
};

MemoryPlan plan_memory(const ModelConfig& config);

}  // namespace deepinfer::checkpoint
