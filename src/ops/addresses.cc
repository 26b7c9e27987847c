#include "ops/addresses.h"

#include "base/error.h"

namespace deepinfer::ops {
namespace {

/// Row `row` of page `page`, or null if there are no such pages.
uint8_t* page_row(const TensorView& pages, int64_t page, int64_t row) {
  if (pages.empty()) return nullptr;
  DEEPINFER_CHECK(page < pages.dim(0), "page {} of {}", page, pages.dim(0));
  return pages.row<uint8_t>(page) + row * pages.dim(2);
}

}  // namespace

std::optional<int64_t> row_at(const RowBatch& rows, int64_t b, int64_t position, int64_t num_rows) {
  const int64_t place = position - rows.span_first.as<const int64_t>()[b];
  if (place < 0 || place >= rows.span_size.as<const int32_t>()[b]) return std::nullopt;
  const int64_t row =
      rows.span_rows.as<const int32_t>()[rows.span_begin.as<const int32_t>()[b] + place];
  if (row >= num_rows) return std::nullopt;
  return row;
}

bool is_overwritten(const RowBatch& rows, int64_t b, int64_t period, int64_t num_rows) {
  const int64_t end =
      rows.span_first.as<const int64_t>()[b] + rows.span_size.as<const int32_t>()[b];
  for (int64_t t = rows.position.as<const int64_t>()[b] + period; t < end; t += period) {
    if (row_at(rows, b, t, num_rows)) return true;
  }
  return false;
}

std::optional<StoredEntry> find_entry(const CompressedPages& pages, const SlotState& slots,
                                      int64_t slot, int64_t entry) {
  const int64_t per_page = slots.page_tokens / pages.ratio;
  const int64_t index = entry / per_page;
  if (entry < 0 || index >= slots.page_table.dim(1)) return std::nullopt;
  const int64_t page = slots.page_table.row<const int32_t>(slot)[index];
  if (page < 0) return std::nullopt;
  const int64_t row = entry % per_page;
  return StoredEntry{.codes = page_row(pages.entry_codes, page, row),
                     .scales = page_row(pages.entry_scales, page, row),
                     .key_codes = page_row(pages.key_codes, page, row),
                     .key_scales = page_row(pages.key_scales, page, row)};
}

StoredEntry entry_at(const CompressedPages& pages, const SlotState& slots, int64_t slot,
                     int64_t entry) {
  const std::optional<StoredEntry> found = find_entry(pages, slots, slot, entry);
  DEEPINFER_CHECK(found.has_value(), "slot {} has no page for entry {}", slot, entry);
  return *found;
}

}  // namespace deepinfer::ops
