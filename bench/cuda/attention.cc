// Attention over windows and selected entries, and what fills the caches that it reads.

#include <fmt/format.h>

#include <algorithm>

#include "bench/cuda/harness.h"
#include "bench/cuda/step.h"
#include "cuda/ops/ops.h"
#include "tensor/cache_format.h"

namespace deepinfer::bench {
namespace {

constexpr int64_t kContext = 32768;  // tokens of a slot before the step
constexpr int64_t kSlots = 512;

/// Operands of the rows of steps, as pools.
struct AttentionPools {
  explicit AttentionPools(Harness& h)
      : selected_host(DType::kI32, {kPoolRows, h.config().index_topk}) {
    const checkpoint::ModelConfig& c = h.config();
    q = h.random(DType::kBF16, {kPoolRows, c.num_heads, c.head_dim});
    out = h.zeros(DType::kBF16, {kPoolRows, c.num_heads, c.head_dim});
    codes = h.random_bits(DType::kE4M3, {kPoolRows, c.head_dim}, 0xBFBFBFBF, 0);
    scales =
        h.random_bits(DType::kE8M0, {kPoolRows, c.head_dim / kFp8Block}, 0x03030303, 0x74747474);
    const auto k = static_cast<size_t>(c.index_topk);
    for (int64_t b = 0; b < kPoolRows; ++b) {
      draw_ascending({selected_host.view().row<int32_t>(b), k}, kContext, static_cast<uint32_t>(b));
    }
    std::fill_n(count_host.as<int32_t>(), kPoolRows, static_cast<int32_t>(k));
    selected = h.upload(selected_host);
    count = h.upload(count_host);
  }

  Tensor selected_host;
  Tensor count_host{DType::kI32, {kPoolRows}};
  TensorView q, out, codes, scales, selected, count;
};

/// Bytes: queries, results and the step's keys once; window rows of the rings and selected entries
/// of each slot once (of a prompt's rows, which share them, those of the row with most).
/// Operations: a key meets every head twice. Library: both products of all rows as one batched bf16
/// product each, on keys that lie ready.
void sparse_attention(Harness& h, bool has_entries) {
  const checkpoint::ModelConfig& c = h.config();
  const int64_t entries = has_entries ? c.index_topk : 0;
  const std::string name = has_entries ? fmt::format("sparse_attention {}+{}", c.window, entries)
                                       : fmt::format("sparse_attention {}", c.window);
  if (!h.wants(name)) return;
  const MemoryScope scope(h);
  const Caches caches(h, {.slots = kSlots,
                          .committed = kContext,
                          .max_rows = kPromptRows,
                          .has_entries = has_entries});
  const AttentionPools pools(h);
  const TensorView sink = h.random(DType::kF32, {c.num_heads});
  const ops::Rope rope = h.rope();
  const double bytes_per_row =
      static_cast<double>(c.window * window_key_bytes(c.head_dim) +
                          entries * entry_bytes(c.head_dim) + 4 * c.num_heads * c.head_dim);
  for (const int64_t rows : kRowCounts) {
    const MemoryScope of_rows(h);
    const auto steps = step_sets(h, rows, kSlots, kContext, bytes_per_row);
    const auto make = [&](int64_t set) {
      ops::SparseAttentionParams p;
      p.q = in_turn(pools.q, set, rows);
      p.rows = in_turn(steps, set).device();
      p.slots = caches.slots;
      p.window = c.window;
      p.rings = caches.rings;
      p.window_codes = in_turn(pools.codes, set, rows);
      p.window_scales = in_turn(pools.scales, set, rows);
      if (has_entries) {
        p.pages = caches.pages;
        p.selected = in_turn(pools.selected, set, rows);
        p.num_selected = in_turn(pools.count, set, rows);
      }
      p.sink = sink;
      p.rope = rope;
      p.out = in_turn(pools.out, set, rows);
      return p;
    };
    ops::SparseAttentionParams on_host = make(0);
    on_host.rows = steps.front().host();
    on_host.num_selected = pools.count_host;
    const int64_t keys = c.window + entries;
    const double library_us = h.library_us(
        {{.outputs = keys, .columns = c.head_dim, .rows = c.num_heads, .batch = rows},
         {.outputs = c.head_dim, .columns = keys, .rows = c.num_heads, .batch = rows}});
    h.measure<ops::SparseAttentionParams>(
        name, rows, make, cuda::sparse_attention,
        {.cost = ops::cost_of(on_host), .library_us = library_us});
  }
}

/// Bytes: the rows that the rings keep, read and written.
void window_store(Harness& h) {
  if (!h.wants("window_store")) return;
  const MemoryScope scope(h);
  const checkpoint::ModelConfig& c = h.config();
  const Caches caches(h, {.slots = kSlots, .committed = kContext, .max_rows = kPromptRows});
  const TensorView codes = h.zeros(DType::kE4M3, {kPoolRows, c.head_dim});
  const TensorView scales = h.zeros(DType::kE8M0, {kPoolRows, c.head_dim / kFp8Block});
  for (const int64_t rows : kRowCounts) {
    const MemoryScope of_rows(h);
    const int64_t slots = requests_of(rows);
    const int64_t stored = slots * std::min(rows / slots, c.window + kRingSlack);
    const auto bytes = static_cast<double>(2 * stored * window_key_bytes(c.head_dim));
    const auto steps = step_sets(h, rows, kSlots, kContext, bytes / static_cast<double>(rows));
    const auto make = [&](int64_t set) -> ops::WindowStoreParams {
      return {.rows = in_turn(steps, set).device(),
              .window_codes = in_turn(codes, set, rows),
              .window_scales = in_turn(scales, set, rows),
              .rings = caches.rings};
    };
    h.measure<ops::WindowStoreParams>("window_store", rows, make, cuda::window_store,
                                      {.cost = ops::Cost{.bytes = bytes}});
  }
}

/// Every row of a step of single rows completes an entry; of a prompt's rows each `ratio`-th.
/// Bytes: weights, rows and entries; u, g and the latents between the products do not count.
/// Library: the products with x.
void compress(Harness& h, int32_t ratio) {
  const std::string name = fmt::format("compress, ratio {}", ratio);
  if (!h.wants(name)) return;
  const MemoryScope scope(h);
  const checkpoint::ModelConfig& c = h.config();
  const int64_t d = c.hidden_size;
  constexpr int64_t kFirst = 4096;
  const Caches caches(h, {.slots = kMaxDecodeRows,
                          .committed = kFirst,
                          .max_rows = kPromptRows,
                          .ratio = ratio,
                          .has_entries = true,
                          .has_keys = true});
  const auto wkv = h.random_weights(DType::kBF16, c.head_dim, d);
  const auto wgate = h.random_weights(DType::kBF16, c.head_dim, d);
  const auto index_wk = h.random_weights(DType::kBF16, c.index_head_dim, c.head_dim);
  const TensorView norm = h.random(DType::kBF16, {c.head_dim});
  const TensorView x = h.random(DType::kBF16, {kPoolRows, d});
  const ops::Rope rope = h.rope();
  for (const int64_t rows : kRowCounts) {
    const MemoryScope of_rows(h);
    const StepRows step(h, rows, 0, rows > kMaxDecodeRows ? kFirst : kFirst - 1);
    const auto make = [&](int64_t set) -> ops::CompressParams {
      return {.x = in_turn(x, set, rows),
              .rows = step.device(),
              .slots = caches.slots,
              .wkv = in_turn(wkv, set).weight,
              .wgate = ratio == 2 ? in_turn(wgate, set).weight : TensorView(),
              .norm = norm,
              .index_wk = in_turn(index_wk, set).weight,
              .index_norm = norm.slice(0, c.index_head_dim),
              .rope = rope,
              .eps = c.rms_eps,
              .pages = caches.pages,
              .pending = caches.pending,
              .trace_latent = {}};
    };
    const double library_us =
        h.library_us({{.outputs = ratio * c.head_dim, .columns = d, .rows = rows}});
    h.measure<ops::CompressParams>(name, rows, make, cuda::compress, {.library_us = library_us});
  }
}

}  // namespace

void measure_attention(Harness& harness) {
  sparse_attention(harness, false);
  sparse_attention(harness, true);
  window_store(harness);
  compress(harness, 2);
  compress(harness, 1);
}

}  // namespace deepinfer::bench
