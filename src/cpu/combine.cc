#include <algorithm>

#include "cpu/operations.h"

namespace deepinfer::cpu {

void combine(const Context& context, const ops::CombineParams& p) {
  const int64_t choices = p.experts.dim(1);
  const int64_t d = p.y.dim(1);
  context.parallel_for(p.y.dim(0), 4, [&](int64_t begin, int64_t end) {
    Arena& own = context.workspace.own(ThreadPool::thread_index());
    own.reset();
    auto* rows = own.take<const BFloat16*>(choices + 1);
    auto* order = own.take<int64_t>(choices);
    for (int64_t b = begin; b < end; ++b) {
      const auto* ids = p.experts.row<const int32_t>(b);
      for (int64_t i = 0; i < choices; ++i) order[i] = i;
      std::sort(order, order + choices, [ids](int64_t i, int64_t j) { return ids[i] < ids[j]; });
      for (int64_t i = 0; i < choices; ++i) {
        rows[i] = p.slot_rows.row<const BFloat16>(b) + order[i] * d;
      }
      rows[choices] = p.shared_rows.row<const BFloat16>(b);
      context.kernels.experts.add_rows(rows, choices + 1, d, p.y.row<BFloat16>(b));
    }
  });
}

}  // namespace deepinfer::cpu
