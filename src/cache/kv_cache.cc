#include "cache/kv_cache.h"

#include <algorithm>
#include <array>
#include <utility>

#include "tensor/quantize.h"

namespace deepinfer::cache {

int64_t CacheShape::page_bytes() const {
  int64_t bytes = 0;
  for (const int32_t ratio : source_ratios) {
    bytes += kPageTokens / ratio * (entry_bytes(head_dim) + index_key_bytes(index_head_dim));
  }
  return bytes;
}

int64_t CacheShape::slot_bytes() const {
  const auto pairs = std::ranges::count_if(source_ratios, [](int32_t r) { return r > 1; });
  return ring_bytes(num_layers, window, head_dim) + pairs * open_pair_bytes(head_dim);
}

int64_t CacheShape::snapshot_unit_bytes() const {
  return snapshot_bytes(snapshot_unit_layers(), window, head_dim);
}

int64_t CacheShape::ring_rows() const {
  return window + kRingSlack;
}

int64_t CacheShape::max_slot_pages() const {
  return (max_slot_tokens + kPageTokens - 1) / kPageTokens;
}

KvCache::KvCache(ops::Backend& backend, const CacheShape& shape)
    : backend_(backend),
      shape_(shape),
      host_tags_(DType::kI64, {shape.num_layers, shape.ring_rows()}),
      minus_ones_i32_(DType::kI32, {std::max(shape.max_slot_pages(), shape.ngram)}) {
  std::ranges::fill(std::span(minus_ones_i32_.as<int32_t>(), size_t(minus_ones_i32_.shape()[0])),
                    -1);

  const int64_t slots = shape.num_slots;
  const auto make = [&](DType dtype, const Shape& extents) {
    return own(backend.allocate(dtype, extents)).view();
  };
  slot_views_.committed = make(DType::kI64, {slots});
  slot_views_.last_token = make(DType::kI32, {slots});
  slot_views_.history = make(DType::kI32, {slots, std::max<int64_t>(shape.ngram - 1, 1)});
  slot_views_.page_table = make(DType::kI32, {slots, shape.max_slot_pages()});
  slot_views_.page_tokens = kPageTokens;

  for (const int32_t ratio : shape.source_ratios) {
    const int64_t entries = kPageTokens / ratio;
    const int64_t pages = shape.num_pages;
    page_views_.push_back(
        {.entry_codes = make(DType::kE2M1x2, {pages, entries, shape.head_dim / 2}),
         .entry_scales = make(DType::kE4M3, {pages, entries, shape.head_dim / kFp4KvBlock}),
         .key_codes = make(DType::kE2M1x2, {pages, entries, shape.index_head_dim / 2}),
         .key_scales = make(DType::kE8M0, {pages, entries, shape.index_head_dim / kFp8Block}),
         .ratio = ratio});
    pending_.push_back(ratio == 1
                           ? TensorView()
                           : make(DType::kF32, {slots, ops::kPendingRows, 2, shape.head_dim}));
  }
  const int64_t layers = shape.num_layers;
  const int64_t ring_rows = shape.ring_rows();
  const int64_t scales = shape.head_dim / kFp8Block;
  ring_codes_ = make(DType::kE4M3, {slots, layers, ring_rows, shape.head_dim});
  ring_scales_ = make(DType::kE8M0, {slots, layers, ring_rows, scales});
  ring_tags_ = make(DType::kI64, {slots, layers, ring_rows});
  for (int64_t layer = 0; layer < layers; ++layer) {
    ring_views_.push_back({.codes = ring_codes_.select(1, layer),
                           .scales = ring_scales_.select(1, layer),
                           .tags = ring_tags_.select(1, layer)});
  }
  if (const int64_t units = shape.num_snapshot_units; units > 0) {
    const int64_t unit_layers = shape.snapshot_unit_layers();
    unit_codes_ = make(DType::kE4M3, {units, unit_layers, ring_rows, shape.head_dim});
    unit_scales_ = make(DType::kE8M0, {units, unit_layers, ring_rows, scales});
  }
  for (int64_t slot = 0; slot < slots; ++slot) reset_slot(static_cast<int32_t>(slot));
}

Tensor& KvCache::own(Tensor tensor) {
  return storage_.emplace_back(std::move(tensor));
}

TensorView KvCache::pending(int64_t source) const {
  return pending_[static_cast<size_t>(source)];
}

void KvCache::reset_slot(int32_t slot, const SlotStart& start) {
  int64_t position = start.position;
  backend_.copy(TensorView(&position, DType::kI64, {1}), slot_views_.committed.slice(slot, 1));
  const TensorView table = slot_views_.page_table.at(slot);
  backend_.copy(minus_ones_i32_.view().slice(0, table.dim(0)), table);

  const TensorView history = slot_views_.history.at(slot);
  std::vector<int32_t> newest_first(static_cast<size_t>(history.dim(0)), -1);
  const size_t known =
      std::min({newest_first.size(), start.tokens.size(), static_cast<size_t>(start.position)});
  std::copy_n(start.tokens.rbegin(), known, newest_first.begin());
  backend_.copy(TensorView(newest_first.data(), DType::kI32, {history.dim(0)}), history);
  restore_rings(slot, start);
}

void KvCache::restore_rings(int32_t slot, const SlotStart& start) {
  const int64_t ring_rows = shape_.ring_rows();
  std::fill_n(host_tags_.as<int64_t>(), shape_.num_layers * ring_rows, int64_t{-1});
  /// Copies the rings of `count` layers from a unit; they hold the window before the position.
  const auto restore = [&](int32_t unit, int64_t layer, int64_t count, int64_t floor) {
    if (count == 0) return;
    backend_.copy(unit_codes_.at(unit).slice(0, count), ring_codes_.at(slot).slice(layer, count));
    backend_.copy(unit_scales_.at(unit).slice(0, count), ring_scales_.at(slot).slice(layer, count));
    for (int64_t l = layer; l < layer + count; ++l) {
      auto* tags = host_tags_.view().row<int64_t>(l);
      for (int64_t t = std::max(floor, start.position - shape_.window); t < start.position; ++t) {
        tags[t % ring_rows] = t;
      }
    }
  };
  if (start.rings) {
    restore(start.rings->encoder, 0, shape_.encoder_layers, 0);
    if (start.rings->decoder >= 0) {
      restore(start.rings->decoder, shape_.encoder_layers,
              shape_.num_layers - shape_.encoder_layers, start.rings->decoder_floor);
    }
  }
  backend_.copy(host_tags_, ring_tags_.at(slot));
}

void KvCache::save_rings(int32_t slot, const SnapshotUnits& to) {
  const auto save = [&](int32_t unit, int64_t layer, int64_t count) {
    if (count == 0) return;
    backend_.copy(ring_codes_.at(slot).slice(layer, count), unit_codes_.at(unit).slice(0, count));
    backend_.copy(ring_scales_.at(slot).slice(layer, count), unit_scales_.at(unit).slice(0, count));
  };
  save(to.encoder, 0, shape_.encoder_layers);
  if (to.decoder >= 0) {
    save(to.decoder, shape_.encoder_layers, shape_.num_layers - shape_.encoder_layers);
  }
}

void KvCache::copy_bytes(std::byte* host, std::span<const TensorView> views, bool to_host) {
  for (const TensorView& view : views) {
    const TensorView bytes(host, view.dtype(), view.shape());
    to_host ? backend_.copy(view, bytes) : backend_.copy(bytes, view);
    host += view.num_bytes();
  }
}

std::vector<TensorView> KvCache::page_parts(int32_t page_id) const {
  std::vector<TensorView> parts;
  for (const ops::CompressedPages& source : page_views_) {
    for (const TensorView& part :
         {source.entry_codes, source.entry_scales, source.key_codes, source.key_scales}) {
      parts.push_back(part.at(page_id));
    }
  }
  return parts;
}

void KvCache::read_page(int32_t page_id, std::span<std::byte> out) {
  DEEPINFER_CHECK(static_cast<int64_t>(out.size()) == shape_.page_bytes(), "a page of {} bytes",
                  out.size());
  copy_bytes(out.data(), page_parts(page_id), true);
}

void KvCache::write_page(int32_t page_id, std::span<const std::byte> bytes) {
  DEEPINFER_CHECK(static_cast<int64_t>(bytes.size()) == shape_.page_bytes(), "a page of {} bytes",
                  bytes.size());
  copy_bytes(const_cast<std::byte*>(bytes.data()), page_parts(page_id), false);
}

void KvCache::read_unit(int32_t unit, std::span<std::byte> out) {
  DEEPINFER_CHECK(static_cast<int64_t>(out.size()) == shape_.snapshot_unit_bytes(),
                  "a snapshot unit of {} bytes", out.size());
  copy_bytes(out.data(), std::array{unit_codes_.at(unit), unit_scales_.at(unit)}, true);
}

void KvCache::write_unit(int32_t unit, std::span<const std::byte> bytes) {
  DEEPINFER_CHECK(static_cast<int64_t>(bytes.size()) == shape_.snapshot_unit_bytes(),
                  "a snapshot unit of {} bytes", bytes.size());
  copy_bytes(const_cast<std::byte*>(bytes.data()),
             std::array{unit_codes_.at(unit), unit_scales_.at(unit)}, false);
}

void KvCache::assign_page(int32_t slot, int64_t page, int32_t page_id) {
  backend_.copy(TensorView(&page_id, DType::kI32, {1}),
                slot_views_.page_table.at(slot).slice(page, 1));
}

}  // namespace deepinfer::cache
