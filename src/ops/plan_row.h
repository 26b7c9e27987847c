#pragma once

#include <cstdint>

namespace deepinfer::ops {

/// Why a row is in a step.
enum class RowRole : uint8_t {
  kPrefill,  // a prompt token, known to the host
  kDecode,   // the slot's last sampled token, known to the device only
  kVerify,   // the last sampled token (offset 0) or draft number offset - 1
  kReplay,   // a cached prompt token that rebuilds rings: writes no page, is never sampled
};

/// One row of a step, symbolic: its true position is known only on the device, where resolve_rows
/// adds the slot's committed length.
struct PlanRow {
  int32_t slot;    // request slot
  int32_t offset;  // position minus the slot's committed length at the start of the step (negative
                   // for kReplay)
  int32_t token;   // kPrefill, kReplay: the token id; kDecode, kVerify: -1
  RowRole role;
};

}  // namespace deepinfer::ops
