#pragma once

#include <cstdint>

#include "checkpoint/config.h"
#include "cuda/cuda.h"
#include "deepinfer/engine.h"
#include "model/forward.h"

namespace deepinfer::engine {

/// What a model takes on a device, by kind, in bytes: known before anything is read.
struct DevicePlan {
  int64_t weights = 0;      // all tensors but Engram's tables, as stored
  int64_t caches = 0;       // pages, rings, open pairs, token counts
  int64_t activations = 0;  // of a step of the most rows
  int64_t workspace = 0;    // scratch memory of the largest operation

  int64_t total() const { return weights + caches + activations + workspace; }
};

/// `cache_bytes`: pages and slots.
DevicePlan plan_device(const checkpoint::ModelConfig& config, const model::StepLimits& limits,
                       int64_t cache_bytes);

/// The options of a backend that takes all of it in one piece. Errors: kResourceExhausted with the
/// sum by kind and what to lower, if the device has less free; kUnsupported if it cannot be used.
cuda::BackendOptions backend_options(const EngineOptions& options, const DevicePlan& plan);

}  // namespace deepinfer::engine
