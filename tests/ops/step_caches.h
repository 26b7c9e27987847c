#pragma once

#include <span>
#include <vector>

#include "ops/backend.h"
#include "tests/support/operands.h"

namespace deepinfer::ops {

/// Extents of a StepCaches.
struct CacheSizes {
  int64_t slots = 2;
  int64_t page_tokens = 16;
  int64_t pages_per_slot = 32;
  int64_t head_dim = 32;
  int64_t index_dim = 32;
  int64_t ring_rows = 48;
  int32_t ratio = 1;
  int64_t ngram = 3;
  int64_t drafts = 5;
};

/// The state and one layer's caches of a few slots, and steps on them: what the operations that
/// read other rows need. Every page is there; a slot's pages are not in order.
class StepCaches {
 public:
  StepCaches(Backend& backend, testing::Operands& operands, const CacheSizes& sizes);

  void set_committed(int32_t slot, int64_t tokens);
  /// The addresses of the plan's rows, in the plan's order.
  RowBatch resolve(std::span<const PlanRow> plan);
  /// Advances `slot` to behind batch row `last_row`.
  void commit(const RowBatch& rows, int32_t slot, int32_t last_row);
  /// Writes keys [n, head_dim] to the ring as positions 0…n-1.
  void fill_ring(int32_t slot, std::span<const float> keys);
  /// Writes entries (or index keys) [n, dim] from entry 0 on. Their values are stored exactly if
  /// they are multiples of a block scale.
  void fill_entries(int32_t slot, std::span<const float> entries);
  void fill_keys(int32_t slot, std::span<const float> keys);
  /// The values of entries (or index keys) [0, count).
  std::vector<float> entries(int32_t slot, int64_t count) const;
  std::vector<float> keys(int32_t slot, int64_t count) const;

  CacheSizes sizes;
  SlotState slots;
  CompressedPages pages;
  WindowRings rings;      // of one layer of several: a slot's rings lie together
  WindowRings all_rings;  // of all layers, [S, L, R, …]
  TensorView pending;

 private:
  /// Page and row of an entry.
  TensorView entry_row(const TensorView& pages_view, int32_t slot, int64_t entry) const;
  int64_t page_of(int64_t slot, int64_t index) const;

  Backend& backend_;
  testing::Operands& operands_;
};

/// `count` rows of a slot from `offset` on, by ascending position.
std::vector<PlanRow> plan_rows(int32_t slot, int32_t offset, int32_t count,
                               RowRole role = RowRole::kPrefill);

}  // namespace deepinfer::ops
