#include "tests/ops/suite.h"

namespace deepinfer::ops {

std::vector<BackendCase> backends_of(Numerics numerics) {
  std::vector<BackendCase> result;
  for (const BackendCase& backend : suite().backends) {
    if (backend.numerics == numerics) result.push_back(backend);
  }
  return result;
}

}  // namespace deepinfer::ops
