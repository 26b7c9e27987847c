#pragma once

#include <span>

#include "ops/rows.h"

namespace deepinfer::ops {

/// The first operation of a step: turns the symbolic plan into tokens, positions and look-back
/// tokens.
struct ResolveRowsParams {
  std::span<const PlanRow> plan;        // B rows, deepest first; a slot's offsets are consecutive
  std::span<const int32_t> span_begin;  // [B] host plan, see RowBatch
  std::span<const int32_t> span_size;   // [B]
  std::span<const int32_t> span_rows;   // [B]
  SlotState slots;
  RowBatch out;
};
void check(const ResolveRowsParams& params);

}  // namespace deepinfer::ops
