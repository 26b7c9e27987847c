#pragma once

#include <cstdint>
#include <optional>

#include "ops/rows.h"

/// Where the rows of a step and the entries of a slot are, for backends that read them on the host.
namespace deepinfer::ops {

/// Batch row that holds `position` of row b's slot in this step, if it is one of the `num_rows`
/// that run in the operation.
std::optional<int64_t> row_at(const RowBatch& rows, int64_t b, int64_t position, int64_t num_rows);

/// Whether a later position of the step goes to the same place as row b in a store of `period`
/// positions. Of the rows that share a place only the last is stored, in whatever order they come.
bool is_overwritten(const RowBatch& rows, int64_t b, int64_t period, int64_t num_rows);

/// One entry of a slot as stored. What the pages lack is null.
struct StoredEntry {
  uint8_t* codes = nullptr;
  uint8_t* scales = nullptr;
  uint8_t* key_codes = nullptr;
  uint8_t* key_scales = nullptr;
};
/// Nothing if the slot has no page for it.
std::optional<StoredEntry> find_entry(const CompressedPages& pages, const SlotState& slots,
                                      int64_t slot, int64_t entry);
/// A missing page is the caller's bug.
StoredEntry entry_at(const CompressedPages& pages, const SlotState& slots, int64_t slot,
                     int64_t entry);

}  // namespace deepinfer::ops
