#pragma once

#include <string>
#include <vector>

#include "cpu/backend.h"
#include "cpu/dispatch.h"
#include "tests/ops/suite.h"

namespace deepinfer::cpu {

/// The cpu backend at every level that this machine's processor has.
inline std::vector<ops::BackendCase> cpu_backends() {
  std::vector<ops::BackendCase> cases;
  for (const Kernels* kernels : available_kernels()) {
    const std::string level = kernels->level;
    cases.push_back({"Cpu_" + level, ops::Numerics::kEngine, [level](ThreadPool& pool) {
                       return make_cpu_backend(pool, {.level = level});
                     }});
  }
  return cases;
}

}  // namespace deepinfer::cpu
