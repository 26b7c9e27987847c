#pragma once

#include <cstdint>

#include "base/thread_pool.h"

namespace deepinfer::cpu {

/// What this machine can do at most, on the threads of a pool.
struct MachineLimits {
  double read_bytes_per_second = 0;  // reading memory once, keeping nothing
  double operations_per_second = 0;  // fp32 multiply-adds in registers, two each
};

/// Medians of a few repeats, under a second and a buffer of limit_buffer_bytes() in all.
/// Errors: std::bad_alloc.
MachineLimits measure_limits(ThreadPool& pool);

/// Wall time of reading `count` bytes once, on all threads, keeping nothing: the limit of whatever
/// must read them. Whole MiB are read.
double seconds_to_read(ThreadPool& pool, const void* data, int64_t count);

/// The rate of independent fp32 multiply-adds in registers on all threads, two operations each.
double peak_operations_per_second(ThreadPool& pool);

/// Four times the last-level cache, from 256 MiB to 2 GiB: too much to be found in it.
int64_t limit_buffer_bytes();

}  // namespace deepinfer::cpu
