#pragma once

#include "base/thread_pool.h"

namespace deepinfer::cpu {

/// What this machine can do at most, on the threads of a pool.
struct MachineLimits {
  double read_bytes_per_second = 0;  // reading memory once, keeping nothing
  double operations_per_second = 0;  // fp32 multiply-adds in registers, two each
};

/// Measures both, which takes under a second and 256 MiB: a buffer of several times the usual
/// last-level cache. Errors: std::bad_alloc.
MachineLimits measure_limits(ThreadPool& pool);

}  // namespace deepinfer::cpu
