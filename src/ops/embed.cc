#include "ops/embed.h"

#include "ops/check.h"

namespace deepinfer::ops {

void check(const EmbedParams& p) {
  check_rank("embed", "streams", p.streams, 3);
  check_rank("embed", "table", p.table, 2);
  const int64_t rows = p.streams.dim(0);
  const int64_t d = p.streams.dim(2);
  check_operand("embed", "token", p.token, {rows}, DType::kI32);
  check_operand("embed", "table", p.table, {p.table.dim(0), d}, kPlainTypes);
  check_operand("embed", "streams", p.streams, {rows, p.streams.dim(1), d}, kActTypes);
}

}  // namespace deepinfer::ops
