#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "bench/cuda/harness.h"
#include "ops/plan_row.h"
#include "ops/rows.h"

namespace deepinfer::bench {

/// Extents of Caches.
struct CacheShape {
  int64_t slots = 1;
  int64_t committed = 0;  // tokens of every slot
  int64_t max_rows = 1;   // that a step adds to a slot
  int32_t ratio = 1;      // of the pages
  bool has_entries = false;
  bool has_keys = false;
};

/// The state of request slots and one layer's caches, full of random numbers. The pages of a slot
/// lie scattered, as they do after a while.
struct Caches {
  Caches(Harness& harness, const CacheShape& shape);

  ops::SlotState slots;
  ops::CompressedPages pages;
  ops::WindowRings rings;
  TensorView pending;
};

/// The rows of a step: `rows` of them over requests_of(rows) slots from `first_slot` on, those of a
/// slot one after the other, at consecutive positions from `first_position` on.
class StepRows {
 public:
  StepRows(Harness& harness, int64_t rows, int64_t first_slot, int64_t first_position);

  const ops::RowBatch& device() const { return device_; }
  /// The same in host memory, for costs and plans.
  const ops::RowBatch& host() const { return host_; }
  std::span<const ops::PlanRow> plan() const { return plan_; }

 private:
  void fill(Harness& harness, int64_t first_slot, int64_t first_position);

  std::vector<Tensor> storage_;
  ops::RowBatch host_;
  ops::RowBatch device_;
  std::vector<ops::PlanRow> plan_;
};

/// Sets of rows for measurements that read `bytes_per_row`: every set has slots of its own, as far
/// as `num_slots` go.
std::vector<StepRows> step_sets(Harness& harness, int64_t rows, int64_t num_slots,
                                int64_t first_position, double bytes_per_row);

/// `count` different numbers below `end`, ascending, spread alike.
void draw_ascending(std::span<int32_t> numbers, int64_t end, uint32_t seed);

}  // namespace deepinfer::bench
