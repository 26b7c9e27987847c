#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ops/backend.h"
#include "tensor/cache_format.h"

namespace deepinfer::cache {

/// Extents of a KvCache. Symbols as in spec/model.md §1.
struct CacheShape {
  int64_t num_layers = 0;
  int64_t encoder_layers = 0;          // up to the last KV source, that one included
  int64_t window = 0;                  // W
  int64_t head_dim = 0;                // D
  int64_t index_head_dim = 0;          // Di
  std::vector<int32_t> source_ratios;  // ρ of each KV source, in layer order
  int64_t ngram = 1;                   // Engram's N; 1 without Engram

  int64_t num_slots = 0;  // requests that run at once
  int64_t num_pages = 0;
  int64_t num_snapshot_units = 0;  // see SnapshotPool
  int64_t max_slot_tokens = 0;     // longest request

  /// Bytes of one page of all sources / of one slot's rings, tags and open pairs.
  int64_t page_bytes() const;
  int64_t slot_bytes() const;
  int64_t snapshot_unit_bytes() const;
  /// Layers whose rings a snapshot unit has room for: the larger half's.
  int64_t snapshot_unit_layers() const {
    return std::max(encoder_layers, num_layers - encoder_layers);
  }
  int64_t ring_rows() const;
  int64_t max_slot_pages() const;
};

using deepinfer::kPageTokens;
using deepinfer::kRingSlack;

/// The memory of a ring snapshot (see SnapshotPool), and what of it is decoder rings.
struct SnapshotUnits {
  int32_t encoder = -1;
  int32_t decoder = -1;       // -1: without decoder rings
  int64_t decoder_floor = 0;  // bounded replay: decoder rings begin at this position
};

/// Where a slot's sequence begins.
struct SlotStart {
  int64_t position = 0;                     // tokens before it count as committed
  std::span<const int32_t> tokens = {};     // those tokens, or at least the last ngram - 1
  std::optional<SnapshotUnits> rings = {};  // rings as they were at `position`; nothing: empty
};

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

  /// Forgets everything of a slot, which has no pages from now on, and begins another sequence.
  void reset_slot(int32_t slot, const SlotStart& start = {});
  /// Tells the slot that its tokens [page·kPageTokens, (page+1)·kPageTokens) live in `page_id`.
  void assign_page(int32_t slot, int64_t page, int32_t page_id);
  /// Copies the slot's rings to a snapshot. It is complete for every position that the slot has
  /// passed by at most kRingSlack tokens.
  void save_rings(int32_t slot, const SnapshotUnits& to);

  /// Copies a page from or to host memory of page_bytes(), source by source (entry codes, entry
  /// scales, key codes, key scales). Wait for synchronize() before using what was read.
  void read_page(int32_t page_id, std::span<std::byte> out);
  void write_page(int32_t page_id, std::span<const std::byte> bytes);
  /// The same for the rings of a snapshot unit, snapshot_unit_bytes(): codes, then scales of all
  /// layers; see ring_image.h for a form that does not depend on the ring's size.
  void read_unit(int32_t unit, std::span<std::byte> out);
  void write_unit(int32_t unit, std::span<const std::byte> bytes);

 private:
  Tensor& own(Tensor tensor);
  void restore_rings(int32_t slot, const SlotStart& start);
  /// Copies between host bytes and backend views that follow each other in them.
  void copy_bytes(std::byte* host, std::span<const TensorView> views, bool to_host);
  std::vector<TensorView> page_parts(int32_t page_id) const;

  ops::Backend& backend_;
  CacheShape shape_;
  std::vector<Tensor> storage_;
  ops::SlotState slot_views_;
  std::vector<ops::CompressedPages> page_views_;
  std::vector<TensorView> pending_;
  std::vector<ops::WindowRings> ring_views_;
  // Of all layers: those of a slot lie together, and so do the encoder's and the decoder's.
  TensorView ring_codes_, ring_scales_, ring_tags_;  // [S, L, R, …]
  TensorView unit_codes_, unit_scales_;              // [units, unit layers, R, …]; may be empty
  Tensor host_tags_;                                 // [L, R]
  Tensor minus_ones_i32_;                            // [max(slot pages, ngram)], host
};

}  // namespace deepinfer::cache
