#include "bench/cuda/step.h"

#include <algorithm>
#include <random>

#include "tensor/cache_format.h"

namespace deepinfer::bench {
namespace {

/// [slots, pages of a slot]: a permutation of all pages.
TensorView scattered_pages(Harness& h, int64_t slots, int64_t pages_per_slot) {
  constexpr int64_t kPrime = 2654435761;  // larger than any number of pages, so nothing repeats
  const Tensor table(DType::kI32, {slots, pages_per_slot});
  const int64_t count = slots * pages_per_slot;
  auto* pages = table.as<int32_t>();
  for (int64_t i = 0; i < count; ++i) pages[i] = static_cast<int32_t>(i * kPrime % count);
  return h.upload(table);
}

ops::CompressedPages random_pages(Harness& h, const CacheShape& shape, int64_t num_pages) {
  const checkpoint::ModelConfig& c = h.config();
  const int64_t entries = kPageTokens / shape.ratio;
  const int64_t width = c.head_dim;
  const int64_t key_width = c.index_head_dim;
  ops::CompressedPages pages;
  pages.ratio = shape.ratio;
  if (shape.has_entries) {
    pages.entry_codes =
        h.random_bits(DType::kE2M1x2, {num_pages, entries, width / 2}, 0xFFFFFFFF, 0);
    pages.entry_scales =  // positive, below 2
        h.random_bits(DType::kE4M3, {num_pages, entries, width / kFp4KvBlock}, 0x3F3F3F3F, 0);
  }
  if (shape.has_keys) {
    pages.key_codes =
        h.random_bits(DType::kE2M1x2, {num_pages, entries, key_width / 2}, 0xFFFFFFFF, 0);
    pages.key_scales = h.random_bits(DType::kE8M0, {num_pages, entries, key_width / kFp8Block},
                                     0x03030303, 0x74747474);
  }
  return pages;
}

/// Rings of the last positions before `committed`.
ops::WindowRings random_rings(Harness& h, int64_t slots, int64_t committed) {
  const int64_t width = h.config().head_dim;
  const int64_t rows = h.config().window + kRingSlack;
  const Tensor tags(DType::kI64, {slots, rows});
  for (int64_t s = 0; s < slots; ++s) {
    auto* tag = tags.view().row<int64_t>(s);
    std::fill_n(tag, rows, int64_t{-1});
    for (int64_t t = std::max<int64_t>(0, committed - rows); t < committed; ++t) tag[t % rows] = t;
  }
  return {.codes = h.random_bits(DType::kE4M3, {slots, rows, width}, 0xBFBFBFBF, 0),
          .scales =
              h.random_bits(DType::kE8M0, {slots, rows, width / kFp8Block}, 0x03030303, 0x74747474),
          .tags = h.upload(tags)};
}

}  // namespace

Caches::Caches(Harness& h, const CacheShape& shape) {
  const checkpoint::ModelConfig& c = h.config();
  const int64_t n = shape.slots;
  const int64_t pages_per_slot = (shape.committed + shape.max_rows + kPageTokens - 1) / kPageTokens;
  const Tensor committed(DType::kI64, {n});
  std::fill_n(committed.as<int64_t>(), n, shape.committed);
  slots = {.committed = h.upload(committed),
           .last_token = h.zeros(DType::kI32, {n}),
           .drafts = h.zeros(DType::kI32, {n, c.dspark_block_size}),
           .history = h.zeros(DType::kI32, {n, c.engram_max_ngram - 1}),
           .page_table = scattered_pages(h, n, pages_per_slot),
           .page_tokens = kPageTokens};
  pages = random_pages(h, shape, n * pages_per_slot);
  rings = random_rings(h, n, shape.committed);
  if (shape.ratio == 2) pending = h.random(DType::kF32, {n, kPendingRows, 2, c.head_dim});
}

StepRows::StepRows(Harness& h, int64_t rows, int64_t first_slot, int64_t first_position) {
  const auto make = [&](DType dtype, const Shape& shape) {
    return storage_.emplace_back(dtype, shape).view();
  };
  host_ = {.token = make(DType::kI32, {rows}),
           .position = make(DType::kI64, {rows}),
           .slot = make(DType::kI32, {rows}),
           .role = make(DType::kU8, {rows}),
           .span_begin = make(DType::kI32, {rows}),
           .span_size = make(DType::kI32, {rows}),
           .span_first = make(DType::kI64, {rows}),
           .span_rows = make(DType::kI32, {rows}),
           .context = make(DType::kI32, {rows, h.config().engram_max_ngram})};
  fill(h, first_slot, first_position);
  device_ = {.token = h.upload(host_.token),
             .position = h.upload(host_.position),
             .slot = h.upload(host_.slot),
             .role = h.upload(host_.role),
             .span_begin = h.upload(host_.span_begin),
             .span_size = h.upload(host_.span_size),
             .span_first = h.upload(host_.span_first),
             .span_rows = h.upload(host_.span_rows),
             .context = h.upload(host_.context)};
}

void StepRows::fill(Harness& h, int64_t first_slot, int64_t first_position) {
  const int64_t rows = host_.position.dim(0);
  const int64_t per_slot = rows / requests_of(rows);
  const auto role = per_slot == 1 ? ops::RowRole::kDecode : ops::RowRole::kPrefill;
  std::mt19937 random(static_cast<uint32_t>(first_slot + 1));
  std::uniform_int_distribution<int32_t> token(0, static_cast<int32_t>(h.config().vocab_size - 1));
  for (int64_t b = 0; b < rows; ++b) {
    const int64_t place = b % per_slot;
    const auto slot = static_cast<int32_t>(first_slot + b / per_slot);
    int32_t* context = host_.context.row<int32_t>(b);
    for (int64_t i = 0; i < host_.context.dim(1); ++i) context[i] = token(random);
    host_.token.as<int32_t>()[b] = context[0];
    host_.position.as<int64_t>()[b] = first_position + place;
    host_.slot.as<int32_t>()[b] = slot;
    host_.role.as<uint8_t>()[b] = static_cast<uint8_t>(role);
    host_.span_begin.as<int32_t>()[b] = static_cast<int32_t>(b - place);
    host_.span_size.as<int32_t>()[b] = static_cast<int32_t>(per_slot);
    host_.span_first.as<int64_t>()[b] = first_position;
    host_.span_rows.as<int32_t>()[b] = static_cast<int32_t>(b);
    plan_.push_back({.slot = slot,
                     .offset = static_cast<int32_t>(place),
                     .token = role == ops::RowRole::kPrefill ? context[0] : -1,
                     .role = role});
  }
}

std::vector<StepRows> step_sets(Harness& h, int64_t rows, int64_t num_slots, int64_t first_position,
                                double bytes_per_row) {
  const int64_t slots = requests_of(rows);
  const int64_t count =
      std::min(num_sets(bytes_per_row * static_cast<double>(rows)), num_slots / slots);
  std::vector<StepRows> sets;
  sets.reserve(static_cast<size_t>(count));
  for (int64_t set = 0; set < count; ++set) {
    sets.emplace_back(h, rows, set * slots, first_position);
  }
  return sets;
}

void draw_ascending(std::span<int32_t> numbers, int64_t end, uint32_t seed) {
  // One of every stretch of equal length.
  std::mt19937 random(seed);
  const auto count = static_cast<int64_t>(numbers.size());
  for (int64_t i = 0; i < count; ++i) {
    const int64_t begin = i * end / count;
    const int64_t length = (i + 1) * end / count - begin;
    numbers[static_cast<size_t>(i)] = static_cast<int32_t>(
        begin + static_cast<int64_t>(random() % static_cast<uint64_t>(length)));
  }
}

}  // namespace deepinfer::bench
