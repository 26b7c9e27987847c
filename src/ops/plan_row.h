#pragma once

#include <cstdint>

namespace deepinfer::ops {

/// Why a row is in a step.
enum class RowRole : uint8_t {
  kPrefill,  // a prompt token, known to the host
  kDecode,   // the slot's last sampled token, known to the device only
  kVerify,   // the last sampled token (offset 0) or draft number offset - 1
  kReplay,   // a token whose page is there already, to rebuild rings: writes no page, is never
             // sampled (its slot restarts before it: cache::KvCache::restart_slot)
};

/// One row of a step, symbolic: its true position is known only on the device, where resolve_rows
/// adds the slot's committed length.
struct PlanRow {
  int32_t slot;    // request slot
  int32_t offset;  // position minus the slot's committed length at the start of the step
  int32_t token;   // kPrefill, kReplay: the token id; kDecode, kVerify: -1
  RowRole role;
};

}  // namespace deepinfer::ops
