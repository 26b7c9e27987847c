#include "ops/engram.h"

#include "ops/check.h"

namespace deepinfer::ops {

void check(const EngramParams& p) {
  check_rank("engram", "streams", p.streams, 3);
  check_rank("engram", "multipliers", p.multipliers, 1);
  check_rank("engram", "primes", p.primes, 1);
  check_rank("engram", "token_map", p.token_map, 1);
  check_rank("engram", "table", p.table.weight, 2);
  const int64_t rows = p.streams.dim(0);
  const int64_t m = p.streams.dim(1);
  const int64_t d = p.streams.dim(2);
  const int64_t n = p.multipliers.dim(0);
  const int64_t columns = p.primes.dim(0);
  const int64_t width = p.table.cols();
  DEEPINFER_CHECK(n >= 2 && columns % (n - 1) == 0, "engram: {} columns for n-grams of 2 to {}",
                  columns, n);
  check_operand("engram", "context", p.context, {rows, n}, DType::kI32);
  check_operand("engram", "token_map", p.token_map, {p.token_map.dim(0)}, DType::kI32);
  check_operand("engram", "multipliers", p.multipliers, {n}, DType::kI64);
  check_operand("engram", "primes", p.primes, {columns}, DType::kI64);
  check_operand("engram", "offsets", p.offsets, {columns}, DType::kI64);
  check_operand("engram", "table", p.table.weight, {p.table.rows(), width}, DType::kE4M3);
  check_weight("engram", "table", p.table, p.table.rows(), width);
  check_weight("engram", "wkv", p.wkv, (m + 1) * d, columns * width);
  check_operand("engram", "q_weight", p.q_weight, {m, d}, kPlainTypes);
  check_operand("engram", "k_weight", p.k_weight, {m, d}, kPlainTypes);
  check_operand("engram", "streams", p.streams, {rows, m, d}, kActTypes);
  check_optional("engram", "trace_rows", p.trace_rows, {rows, columns}, DType::kI64);
  check_optional("engram", "trace_gate", p.trace_gate, {rows, m}, DType::kF32);
}

void engram_rows(const EngramParams& p, std::span<const int32_t> context, std::span<int64_t> rows) {
  const auto* token_map = p.token_map.as<const int32_t>();
  const auto* multipliers = p.multipliers.as<const int64_t>();
  const auto* primes = p.primes.as<const int64_t>();
  const auto* offsets = p.offsets.as<const int64_t>();
  const size_t heads = rows.size() / (context.size() - 1);
  // Unsigned, so that a product beyond 2^63 (impossible for the ids of a checked map) would wrap
  // instead of being undefined.
  uint64_t hash = 0;
  bool blocked = false;  // sticky: nothing is seen beyond a dead position or the start
  for (size_t i = 0; i < context.size(); ++i) {
    blocked = blocked || context[i] < 0;
    DEEPINFER_CHECK(blocked || context[i] < p.token_map.dim(0), "token {} of a map of {}",
                    context[i], p.token_map.dim(0));
    const int64_t id = blocked ? p.pad : token_map[context[i]];
    hash ^= static_cast<uint64_t>(id) * static_cast<uint64_t>(multipliers[i]);
    if (i == 0) continue;
    // The hash of the last i + 1 tokens addresses the columns of that order.
    for (size_t c = (i - 1) * heads; c < i * heads; ++c) {
      rows[c] = static_cast<int64_t>(hash % static_cast<uint64_t>(primes[c])) + offsets[c];
    }
  }
}

}  // namespace deepinfer::ops
