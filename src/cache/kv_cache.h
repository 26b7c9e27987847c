#pragma once

#include <cstdint>
#include <vector>

#include "ops/backend.h"

namespace deepinfer::cache {

/// Extents of a KvCache. Symbols as in spec/model.md §1.
struct CacheShape {
  int64_t num_layers = 0;
  int64_t window = 0;                  // W
  int64_t head_dim = 0;                // D
  int64_t index_head_dim = 0;          // Di
  std::vector<int32_t> source_ratios;  // ρ of each KV source, in layer order
  int64_t ngram = 1;                   // Engram's N; 1 without Engram

  int64_t num_slots = 0;  // requests that run at once
  int64_t num_pages = 0;
  int64_t max_slot_tokens = 0;  // longest request

  /// Bytes of one page of all sources / of one slot's rings, tags and open pairs.
  int64_t page_bytes() const;
  int64_t slot_bytes() const;
  int64_t max_slot_pages() const;
};

/// Tokens per page. Even, so that a ratio-2 group never straddles pages.
inline constexpr int64_t kPageTokens = 64;
/// Ring rows beyond the window: room for two verifications of up to eight rows in flight
/// (design.md, "Caches").
inline constexpr int64_t kRingSlack = 16;

/// The model's caches in quantised form, in backend memory (spec/model.md §6): compressed pages per
/// KV source, window rings per layer, open ratio-2 pairs, and the slot state. Who owns which page
/// or slot is decided elsewhere (IndexPool). Owned by the engine thread.
class KvCache {
 public:
  /// Errors: kResourceExhausted when the backend's memory does not suffice.
  KvCache(ops::Backend& backend, const CacheShape& shape);

  const CacheShape& shape() const { return shape_; }
  const ops::SlotState& slots() const { return slot_views_; }
  const ops::CompressedPages& pages(int64_t source) const {
    return page_views_[static_cast<size_t>(source)];
  }
  /// [S, kPendingRows, 2, D] f32; empty at ratio 1.
  TensorView pending(int64_t source) const;
  const ops::WindowRings& rings(int64_t layer) const {
    return ring_views_[static_cast<size_t>(layer)];
  }

  /// Forgets everything of a slot: length 0, no pages, empty rings.
  void reset_slot(int32_t slot);
  /// Tells the slot that its tokens [page·kPageTokens, (page+1)·kPageTokens) live in `page_id`.
  void assign_page(int32_t slot, int64_t page, int32_t page_id);

 private:
  Tensor& own(Tensor tensor);

  ops::Backend& backend_;
  CacheShape shape_;
  std::vector<Tensor> storage_;
  ops::SlotState slot_views_;
  std::vector<ops::CompressedPages> page_views_;
  std::vector<TensorView> pending_;
  std::vector<ops::WindowRings> ring_views_;
  Tensor minus_ones_i64_;  // [ring rows], host
  Tensor minus_ones_i32_;  // [max(slot pages, ngram)], host
};

}  // namespace deepinfer::cache
