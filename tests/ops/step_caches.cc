#include "tests/ops/step_caches.h"

#include <algorithm>
#include <numeric>

#include "tensor/quantize.h"

namespace deepinfer::ops {
namespace {

/// Host bytes as one row of codes or scales.
TensorView bytes_view(std::vector<uint8_t>& bytes, DType dtype) {
  return {bytes.data(), dtype, {static_cast<int64_t>(bytes.size())}};
}

}  // namespace

StepCaches::StepCaches(Backend& backend, testing::Operands& operands, const CacheSizes& cache_sizes)
    : sizes(cache_sizes), backend_(backend), operands_(operands) {
  const int64_t num_pages = sizes.slots * sizes.pages_per_slot;
  const int64_t entries = sizes.page_tokens / sizes.ratio;
  std::vector<int32_t> table;
  for (int64_t slot = 0; slot < sizes.slots; ++slot) {
    for (int64_t i = 0; i < sizes.pages_per_slot; ++i) {
      table.push_back(static_cast<int32_t>(page_of(slot, i)));
    }
  }
  const int64_t history = std::max(sizes.ngram - 1, int64_t{1});
  const std::vector<int32_t> none(static_cast<size_t>(sizes.slots * history), -1);
  slots = {.committed = operands.zeros(DType::kI64, {sizes.slots}),
           .last_token = operands.zeros(DType::kI32, {sizes.slots}),
           .drafts = operands.zeros(DType::kI32, {sizes.slots, sizes.drafts}),
           .history = operands.put_i32(none, {sizes.slots, history}),
           .page_table = operands.put_i32(table, {sizes.slots, sizes.pages_per_slot}),
           .page_tokens = sizes.page_tokens};
  const auto pages_of = [&](DType dtype, int64_t width) {
    return operands.zeros(dtype, {num_pages, entries, width});
  };
  pages = {.entry_codes = pages_of(DType::kE2M1x2, sizes.head_dim / 2),
           .entry_scales = pages_of(DType::kE4M3, sizes.head_dim / kFp4KvBlock),
           .key_codes = pages_of(DType::kE2M1x2, sizes.index_dim / 2),
           .key_scales = pages_of(DType::kE8M0, sizes.index_dim / kFp8Block),
           .ratio = sizes.ratio};
  constexpr int64_t kLayers = 3;
  const int64_t ring_rows = sizes.ring_rows;
  const std::vector<int64_t> empty(static_cast<size_t>(sizes.slots * kLayers * ring_rows), -1);
  const auto rings_of = [&](DType dtype, int64_t width) {
    return operands.zeros(dtype, {sizes.slots, kLayers, ring_rows, width});
  };
  all_rings = {.codes = rings_of(DType::kE4M3, sizes.head_dim),
               .scales = rings_of(DType::kE8M0, sizes.head_dim / kFp8Block),
               .tags = operands.put(testing::to_tensor(empty, {sizes.slots, kLayers, ring_rows}))};
  rings = {.codes = all_rings.codes.select(1, 1),
           .scales = all_rings.scales.select(1, 1),
           .tags = all_rings.tags.select(1, 1)};
  if (sizes.ratio == 2) {
    pending = operands.zeros(DType::kF32, {sizes.slots, kPendingRows, 2, sizes.head_dim});
  }
}

int64_t StepCaches::page_of(int64_t slot, int64_t index) const {
  return sizes.slots * sizes.pages_per_slot - 1 - (index * sizes.slots + slot);
}

void StepCaches::set_committed(int32_t slot, int64_t tokens) {
  backend_.copy(TensorView(&tokens, DType::kI64, {1}), slots.committed.slice(slot, 1));
  backend_.synchronize();
}

RowBatch StepCaches::resolve(std::span<const PlanRow> plan) {
  const auto count = static_cast<int64_t>(plan.size());
  std::vector<int32_t> span_rows(plan.size());
  std::iota(span_rows.begin(), span_rows.end(), 0);
  const auto key = [&](int32_t row) {
    const PlanRow& planned = plan[static_cast<size_t>(row)];
    return std::pair(planned.slot, planned.offset);
  };
  std::ranges::sort(span_rows, {}, key);
  std::vector<int32_t> span_begin(plan.size());
  std::vector<int32_t> span_size(plan.size());
  for (size_t i = 0; i < span_rows.size(); ++i) {
    const int32_t slot = key(span_rows[i]).first;
    const auto is_of_slot = [&](int32_t row) { return key(row).first == slot; };
    const auto first = std::ranges::find_if(span_rows, is_of_slot);
    const auto row = static_cast<size_t>(span_rows[i]);
    span_begin[row] = static_cast<int32_t>(first - span_rows.begin());
    span_size[row] = static_cast<int32_t>(std::ranges::count_if(span_rows, is_of_slot));
  }
  const auto of = [&](DType dtype) { return operands_.zeros(dtype, {count}); };
  const RowBatch rows{.token = of(DType::kI32),
                      .position = of(DType::kI64),
                      .slot = of(DType::kI32),
                      .role = of(DType::kU8),
                      .span_begin = of(DType::kI32),
                      .span_size = of(DType::kI32),
                      .span_first = of(DType::kI64),
                      .span_rows = of(DType::kI32),
                      .context = operands_.zeros(DType::kI32, {count, sizes.ngram})};
  backend_.resolve_rows({.plan = plan,
                         .span_begin = span_begin,
                         .span_size = span_size,
                         .span_rows = span_rows,
                         .slots = slots,
                         .out = rows});
  backend_.synchronize();
  return rows;
}

void StepCaches::commit(const RowBatch& rows, int32_t slot, int32_t last_row) {
  const CommitEntry entry{.slot = slot, .last_row = last_row, .sample_row = -1};
  backend_.commit(
      {.entries = std::span(&entry, 1), .rows = rows, .token = {}, .counts = {}, .slots = slots});
  backend_.synchronize();
}

void StepCaches::fill_ring(int32_t slot, std::span<const float> keys) {
  const auto dim = static_cast<size_t>(sizes.head_dim);
  std::vector<uint8_t> codes(dim);
  std::vector<uint8_t> scales(dim / kFp8Block);
  for (size_t i = 0; i < keys.size() / dim; ++i) {
    auto position = static_cast<int64_t>(i);
    quantize_fp8(keys.subspan(i * dim, dim), codes.data(), scales.data());
    backend_.copy(bytes_view(codes, DType::kE4M3), rings.codes.at(slot).at(position));
    backend_.copy(bytes_view(scales, DType::kE8M0), rings.scales.at(slot).at(position));
    backend_.copy(TensorView(&position, DType::kI64, {1}), rings.tags.at(slot).slice(position, 1));
    backend_.synchronize();
  }
}

TensorView StepCaches::entry_row(const TensorView& pages_view, int32_t slot, int64_t entry) const {
  const int64_t per_page = sizes.page_tokens / sizes.ratio;
  return pages_view.at(page_of(slot, entry / per_page)).at(entry % per_page);
}

void StepCaches::fill_entries(int32_t slot, std::span<const float> entries) {
  const auto dim = static_cast<size_t>(sizes.head_dim);
  std::vector<uint8_t> codes(dim / 2);
  std::vector<uint8_t> scales(dim / kFp4KvBlock);
  for (size_t e = 0; e < entries.size() / dim; ++e) {
    const auto entry = static_cast<int64_t>(e);
    quantize_fp4_kv(entries.subspan(e * dim, dim), codes.data(), scales.data());
    backend_.copy(bytes_view(codes, DType::kE2M1x2), entry_row(pages.entry_codes, slot, entry));
    backend_.copy(bytes_view(scales, DType::kE4M3), entry_row(pages.entry_scales, slot, entry));
    backend_.synchronize();
  }
}

void StepCaches::fill_keys(int32_t slot, std::span<const float> keys) {
  const auto dim = static_cast<size_t>(sizes.index_dim);
  std::vector<uint8_t> codes(dim / 2);
  std::vector<uint8_t> scales(dim / kFp8Block);
  for (size_t e = 0; e < keys.size() / dim; ++e) {
    const auto entry = static_cast<int64_t>(e);
    quantize_fp4_index(keys.subspan(e * dim, dim), codes.data(), scales.data());
    backend_.copy(bytes_view(codes, DType::kE2M1x2), entry_row(pages.key_codes, slot, entry));
    backend_.copy(bytes_view(scales, DType::kE8M0), entry_row(pages.key_scales, slot, entry));
    backend_.synchronize();
  }
}

std::vector<float> StepCaches::entries(int32_t slot, int64_t count) const {
  std::vector<float> values(static_cast<size_t>(count * sizes.head_dim));
  for (int64_t e = 0; e < count; ++e) {
    const Tensor codes = operands_.get(entry_row(pages.entry_codes, slot, e));
    const Tensor scales = operands_.get(entry_row(pages.entry_scales, slot, e));
    dequantize_fp4_kv(codes.as<uint8_t>(), scales.as<uint8_t>(),
                      std::span(values).subspan(static_cast<size_t>(e * sizes.head_dim),
                                                static_cast<size_t>(sizes.head_dim)));
  }
  return values;
}

std::vector<float> StepCaches::keys(int32_t slot, int64_t count) const {
  std::vector<float> values(static_cast<size_t>(count * sizes.index_dim));
  for (int64_t e = 0; e < count; ++e) {
    const Tensor codes = operands_.get(entry_row(pages.key_codes, slot, e));
    const Tensor scales = operands_.get(entry_row(pages.key_scales, slot, e));
    dequantize_fp4_index(codes.as<uint8_t>(), scales.as<uint8_t>(),
                         std::span(values).subspan(static_cast<size_t>(e * sizes.index_dim),
                                                   static_cast<size_t>(sizes.index_dim)));
  }
  return values;
}

std::vector<PlanRow> plan_rows(int32_t slot, int32_t offset, int32_t count, RowRole role) {
  std::vector<PlanRow> rows;
  for (int32_t i = 0; i < count; ++i) {
    rows.push_back({.slot = slot, .offset = offset + i, .token = offset + i, .role = role});
  }
  return rows;
}

}  // namespace deepinfer::ops
