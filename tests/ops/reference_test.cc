#include "tests/ops/suite.h"

namespace deepinfer::ops {

const Suite& suite() {
  static const Suite suite{.backends = {{"ReferenceEngine", Numerics::kEngine,
                                         [](ThreadPool& pool) {
                                           return make_reference_backend(Numerics::kEngine, pool);
                                         }},
                                        {"ReferenceExact", Numerics::kExact,
                                         [](ThreadPool& pool) {
                                           return make_reference_backend(Numerics::kExact, pool);
                                         }}},
                           .exact_ops = testing::data_path("ops.safetensors"),
                           .released_ops = testing::data_path("ops_released.safetensors")};
  return suite;
}

}  // namespace deepinfer::ops
