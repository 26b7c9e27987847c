#pragma once

#include "cpu/context.h"
#include "ops/backend.h"

/// The backend's operations: what CpuBackend calls after check(), on the engine thread, with
/// subnormals flushed. One source file per header of ops/.
namespace deepinfer::cpu {}  // namespace deepinfer::cpu
