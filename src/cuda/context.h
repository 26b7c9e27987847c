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

/// Counters that kernels use to find out who comes last.
inline constexpr int64_t kNumCounters = 4096;

/// Where a kernel leaves what no caller could check before: pinned memory that the device sees.
struct Fault {
  int64_t bad_table_row;  // -1, or a row of an Engram table that holds a NaN
};

/// What an operation works with. Everything is borrowed from the backend.
struct Context {
  cudaStream_t stream = nullptr;
  Workspace* workspace = nullptr;  // of the operation that runs; see WorkspaceScope
  Staging* staging = nullptr;      // for small host arrays of the params
  PointerTables* tables = nullptr;
  volatile Fault* fault = nullptr;
  int32_t* counters = nullptr;  // [kNumCounters] zero; a kernel that raises one sets it back
  Family family = Family::kGeneric;
  int num_multiprocessors = 0;
};

}  // namespace deepinfer::cuda
