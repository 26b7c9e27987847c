#include <algorithm>

#include "base/error.h"
#include "cpu/operations.h"

namespace deepinfer::cpu {

void embed(const Context& context, const ops::EmbedParams& p) {
  const auto* token = p.token.as<const int32_t>();
  const int64_t m = p.streams.dim(1);
  const int64_t d = p.streams.dim(2);
  context.parallel_for(p.streams.dim(0), 8, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      DEEPINFER_CHECK(token[b] >= 0 && token[b] < p.table.dim(0), "token {} of a vocabulary of {}",
                      token[b], p.table.dim(0));
      auto* streams = p.streams.row<BFloat16>(b);
      if (p.table.dtype() == DType::kBF16) {
        std::copy_n(p.table.row<const BFloat16>(token[b]), d, streams);
      } else {
        context.kernels.products.store_bf16(p.table.row<const float>(token[b]), d, streams);
      }
      for (int64_t j = 1; j < m; ++j) std::copy_n(streams, d, streams + j * d);
    }
  });
}

}  // namespace deepinfer::cpu
