#pragma once

#include <cstddef>
#include <cstdint>

#include "base/thread_pool.h"
#include "cpu/denormals.h"
#include "cpu/kernels.h"
#include "cpu/workspace.h"

namespace deepinfer::cpu {

/// What every operation of the backend gets. Owned by the backend, used by the engine thread.
struct Context {
  ThreadPool& pool;
  const Kernels& kernels;
  Workspace& workspace;

  /// ThreadPool::parallel_for with subnormals flushed on every thread.
  template <typename Body>
  void parallel_for(int64_t count, int64_t grain, const Body& body) const {
    pool.parallel_for(count, grain, [&](int64_t begin, int64_t end) {
      const FlushDenormals flush;
      body(begin, end);
    });
  }
  /// Memory of this thread, empty: taken inside a parallel loop's body.
  Arena& fresh_arena() const {
    Arena& arena = workspace.own(ThreadPool::thread_index());
    arena.reset();
    return arena;
  }
};

}  // namespace deepinfer::cpu
