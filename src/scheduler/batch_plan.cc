#include "scheduler/batch_plan.h"

#include <algorithm>

namespace deepinfer::scheduler {

BatchPlan BatchPlan::only(const PlanSpan& span) const {
  BatchPlan part;
  if (std::ranges::find(reset_slots, span.slot) != reset_slots.end()) {
    part.reset_slots.push_back(span.slot);
  }
  std::ranges::copy_if(pages, std::back_inserter(part.pages),
                       [&](const PageAssignment& page) { return page.slot == span.slot; });
  part.spans.push_back(span);
  part.span_rows.resize(static_cast<size_t>(span.num_tokens));
  for (size_t row = 0; row < rows.size(); ++row) {
    if (rows[row].slot != span.slot) continue;
    const auto index = static_cast<int32_t>(part.rows.size());
    if (static_cast<int32_t>(row) == span.last_row) part.spans[0].last_row = index;
    if (static_cast<int64_t>(row) < num_logit_rows) ++part.num_logit_rows;
    part.span_rows[static_cast<size_t>(rows[row].offset)] = index;
    part.rows.push_back(rows[row]);
  }
  part.span_begin.assign(part.rows.size(), 0);
  part.span_size.assign(part.rows.size(), static_cast<int32_t>(span.num_tokens));
  for (const int64_t layer_rows : rows_at_layer) {
    const auto kept = std::count_if(rows.begin(), rows.begin() + layer_rows,
                                    [&](const ops::PlanRow& row) { return row.slot == span.slot; });
    part.rows_at_layer.push_back(kept);
  }
  return part;
}

}  // namespace deepinfer::scheduler
