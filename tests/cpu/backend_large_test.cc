#include "tests/cpu/backends.h"

namespace deepinfer::ops {

const Suite& suite() {
  static const Suite suite = large_suite(cpu::cpu_backends());
  return suite;
}

}  // namespace deepinfer::ops
