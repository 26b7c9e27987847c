#pragma once

#include <memory>
#include <string>

#include "base/thread_pool.h"
#include "ops/backend.h"

namespace deepinfer::cpu {

struct CpuOptions {
  std::string level;  // instruction set, see choose_kernels(); "" = the best
};

/// The engine's numerics on this machine's processor. `pool` must outlive it. Errors:
/// kInvalidArgument for a level that the processor lacks.
std::unique_ptr<ops::Backend> make_cpu_backend(ThreadPool& pool, const CpuOptions& options = {});

}  // namespace deepinfer::cpu
