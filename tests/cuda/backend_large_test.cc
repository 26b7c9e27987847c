#include "tests/cuda/backends.h"

namespace deepinfer::ops {

const Suite& suite() {
  static const Suite suite = large_suite(cuda::cuda_backends());
  return suite;
}

}  // namespace deepinfer::ops
