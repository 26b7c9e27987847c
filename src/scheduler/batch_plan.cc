#include "scheduler/batch_plan.h"

namespace deepinfer::scheduler {

void BatchPlan::clear() {
  starts.clear();
  pages.clear();
  spans.clear();
  saves.clear();
  rows.clear();
  span_begin.clear();
  span_size.clear();
  span_rows.clear();
  rows_at_layer.clear();
  history.clear();
  num_logit_rows = 0;
}

}  // namespace deepinfer::scheduler
