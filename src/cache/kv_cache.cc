#include "cache/kv_cache.h"

#include <algorithm>
#include <utility>

#include "tensor/quantize.h"

namespace deepinfer::cache {

int64_t CacheShape::page_bytes() const {
  int64_t bytes = 0;
  for (const int32_t ratio : source_ratios) {
    const int64_t entry = head_dim / 2 + head_dim / kFp4KvBlock;
    const int64_t key = index_head_dim / 2 + index_head_dim / kFp8Block;
    bytes += kPageTokens / ratio * (entry + key);
  }
  return bytes;
}

int64_t CacheShape::slot_bytes() const {
  const int64_t ring_row = head_dim + head_dim / kFp8Block + size_of(DType::kI64);
  const auto open_pairs = std::ranges::count_if(source_ratios, [](int32_t r) { return r > 1; });
  return num_layers * (window + kRingSlack) * ring_row +
         open_pairs * ops::kPendingRows * 2 * head_dim * size_of(DType::kF32);
}

int64_t CacheShape::max_slot_pages() const {
  return (max_slot_tokens + kPageTokens - 1) / kPageTokens;
}

KvCache::KvCache(ops::Backend& backend, const CacheShape& shape)
    : backend_(backend),
      shape_(shape),
      minus_ones_i64_(DType::kI64, {shape.window + kRingSlack}),
      minus_ones_i32_(DType::kI32, {std::max(shape.max_slot_pages(), shape.ngram)}) {
  std::ranges::fill(std::span(minus_ones_i64_.as<int64_t>(), size_t(shape.window + kRingSlack)),
                    int64_t{-1});
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
  const int64_t ring_rows = shape.window + kRingSlack;
  for (int64_t layer = 0; layer < shape.num_layers; ++layer) {
    ring_views_.push_back(
        {.codes = make(DType::kE4M3, {slots, ring_rows, shape.head_dim}),
         .scales = make(DType::kE8M0, {slots, ring_rows, shape.head_dim / kFp8Block}),
         .tags = make(DType::kI64, {slots, ring_rows})});
  }
  for (int64_t slot = 0; slot < slots; ++slot) reset_slot(static_cast<int32_t>(slot));
}

Tensor& KvCache::own(Tensor tensor) {
  return storage_.emplace_back(std::move(tensor));
}

TensorView KvCache::pending(int64_t source) const {
  return pending_[static_cast<size_t>(source)];
}

void KvCache::reset_slot(int32_t slot) {
  int64_t zero = 0;
  backend_.copy(TensorView(&zero, DType::kI64, {1}), slot_views_.committed.slice(slot, 1));
  const TensorView history = slot_views_.history.at(slot);
  backend_.copy(minus_ones_i32_.view().slice(0, history.dim(0)), history);
  const TensorView table = slot_views_.page_table.at(slot);
  backend_.copy(minus_ones_i32_.view().slice(0, table.dim(0)), table);
  for (const ops::WindowRings& ring : ring_views_) {
    backend_.copy(minus_ones_i64_, ring.tags.at(slot));
  }
}

void KvCache::assign_page(int32_t slot, int64_t page, int32_t page_id) {
  backend_.copy(TensorView(&page_id, DType::kI32, {1}),
                slot_views_.page_table.at(slot).slice(page, 1));
}

}  // namespace deepinfer::cache
