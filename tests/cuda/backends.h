#pragma once

#include <vector>

#include "cuda/cuda.h"
#include "tests/ops/suite.h"

namespace deepinfer::cuda {

inline std::vector<ops::BackendCase> cuda_backends() {
  return {{"Cuda", ops::Numerics::kEngine, [](ThreadPool&) { return make_backend({}); }}};
}

}  // namespace deepinfer::cuda
