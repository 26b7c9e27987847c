#include "tests/ops/suite.h"

namespace deepinfer::ops {

const Suite& suite() {
  static const Suite suite = large_suite(reference_backends());
  return suite;
}

}  // namespace deepinfer::ops
