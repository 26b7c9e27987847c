#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/arena.h"
#include "cuda/cuda.h"
#include "cuda/pointer_tables.h"
#include "cuda/staging.h"

namespace deepinfer::cuda {

/// Kernel families; each has its own numerics id (docs/cuda-kernels.md).
enum class Family : uint8_t {
  kSm90a,    // Hopper: products by wgmma
  kGeneric,  // from compute capability 8.0: products by mma.sync
};

/// What an operation works with. Everything is borrowed from the backend.
struct Context {
  cudaStream_t stream = nullptr;
  Workspace* workspace = nullptr;  // of the operation that runs; see WorkspaceScope
  Staging* staging = nullptr;      // for small host arrays of the params
  PointerTables* tables = nullptr;
  Family family = Family::kGeneric;
  int num_multiprocessors = 0;
  EngramPlacement engram = EngramPlacement::kFile;
};

}  // namespace deepinfer::cuda
