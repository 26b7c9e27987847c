#pragma once

#include <cstdint>

#include "cuda/device/host_device.h"
#include "ops/rows.h"

/// Where the rows of a step and the entries of a slot are, on the device: the same answers as
/// ops/addresses.h.
namespace deepinfer::cuda {

/// The pointers of a RowBatch that operations read.
struct RowsView {
  const int64_t* position = nullptr;    // [B]
  const int32_t* slot = nullptr;        // [B]
  const uint8_t* role = nullptr;        // [B]
  const int32_t* span_begin = nullptr;  // [B]
  const int32_t* span_size = nullptr;   // [B]
  const int64_t* span_first = nullptr;  // [B]
  const int32_t* span_rows = nullptr;   // [B]
};

inline RowsView view_of(const ops::RowBatch& rows) {
  return {rows.position.as<const int64_t>(),  rows.slot.as<const int32_t>(),
          rows.role.as<const uint8_t>(),      rows.span_begin.as<const int32_t>(),
          rows.span_size.as<const int32_t>(), rows.span_first.as<const int64_t>(),
          rows.span_rows.as<const int32_t>()};
}

/// Batch row that holds `position` of row b's slot in this step, if it is one of the `num_rows`
/// that run in the operation; -1 if there is none.
DEEPINFER_HD int32_t row_at(const RowsView& rows, int64_t b, int64_t position, int64_t num_rows) {
  const int64_t place = position - rows.span_first[b];
  if (place < 0 || place >= rows.span_size[b]) return -1;
  const int32_t row = rows.span_rows[rows.span_begin[b] + place];
  return row < num_rows ? row : -1;
}

/// Whether a later position of the step goes to the same place as row b in a store of `period`
/// positions.
DEEPINFER_HD bool is_overwritten(const RowsView& rows, int64_t b, int64_t period,
                                 int64_t num_rows) {
  const int64_t end = rows.span_first[b] + rows.span_size[b];
  for (int64_t t = rows.position[b] + period; t < end; t += period) {
    if (row_at(rows, b, t, num_rows) >= 0) return true;
  }
  return false;
}

/// One of the four arrays of CompressedPages.
struct PageBytes {
  uint8_t* data = nullptr;
  int64_t page_stride = 0;  // bytes
  int32_t width = 0;        // bytes of a row
};

inline PageBytes page_bytes(const TensorView& pages) {
  if (pages.empty()) return {};
  return {pages.as<uint8_t>(), pages.stride(0), static_cast<int32_t>(pages.dim(2))};
}

/// The compressed pages of a KV source and the way to them.
struct PagesView {
  PageBytes entry_codes, entry_scales, key_codes, key_scales;
  const int32_t* page_table = nullptr;  // [S, P]
  int64_t table_stride = 0;             // elements
  int32_t pages_per_slot = 0;           // P
  int32_t entries_per_page = 1;
  int32_t ratio = 1;
};

inline PagesView view_of(const ops::CompressedPages& pages, const ops::SlotState& slots) {
  return {page_bytes(pages.entry_codes),
          page_bytes(pages.entry_scales),
          page_bytes(pages.key_codes),
          page_bytes(pages.key_scales),
          slots.page_table.as<const int32_t>(),
          slots.page_table.stride(0),
          static_cast<int32_t>(slots.page_table.dim(1)),
          static_cast<int32_t>(slots.page_tokens / pages.ratio),
          pages.ratio};
}

/// Page and row of an entry; the page is -1 where the slot has none.
struct EntryPlace {
  int32_t page;
  int32_t row;
};

DEEPINFER_HD EntryPlace place_of(const PagesView& pages, int64_t slot, int32_t entry) {
  const int32_t index = entry / pages.entries_per_page;
  if (entry < 0 || index >= pages.pages_per_slot) return {-1, 0};
  return {pages.page_table[slot * pages.table_stride + index],
          entry - index * pages.entries_per_page};
}

/// Row `place` of one of the arrays.
DEEPINFER_HD uint8_t* row_of(const PageBytes& bytes, EntryPlace place) {
  return bytes.data + place.page * bytes.page_stride + int64_t{place.row} * bytes.width;
}

}  // namespace deepinfer::cuda
