#include "ops/reference/reference.h"

namespace deepinfer::ops::reference {

void embed(const Context& /*context*/, const EmbedParams& p) {
  const auto* token = p.token.as<const int32_t>();
  for (int64_t b = 0; b < p.streams.dim(0); ++b) {
    DEEPINFER_CHECK(token[b] >= 0 && token[b] < p.table.dim(0), "token {} of a vocabulary of {}",
                    token[b], p.table.dim(0));
    const std::vector<float> row = load_row(p.table, token[b]);
    const TensorView streams = p.streams.at(b);
    for (int64_t j = 0; j < streams.dim(0); ++j) store_row(row, streams, j);
  }
}

}  // namespace deepinfer::ops::reference
