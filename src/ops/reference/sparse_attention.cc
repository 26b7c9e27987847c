#include <algorithm>
#include <array>
#include <cmath>

#include "ops/addresses.h"
#include "ops/reference/reference.h"
#include "tensor/quantize.h"

namespace deepinfer::ops::reference {
namespace {

/// One key of a row's list, as stored: an FP8 window key or an FP4 entry.
struct Key {
  const uint8_t* codes;
  const uint8_t* scales;
  bool is_entry;
};

/// Window keys of row b, oldest first: those of the step from window_codes, older ones from the
/// ring. A position whose row does not run in this layer, or whose ring row holds another position,
/// has no key.
void append_window(const SparseAttentionParams& p, int64_t b, std::vector<Key>& keys) {
  const int64_t position = p.rows.position.as<const int64_t>()[b];
  const int64_t step_begin = p.rows.span_first.as<const int64_t>()[b];
  const int64_t slot = p.rows.slot.as<const int32_t>()[b];
  const int64_t floor = p.window_floor.empty() ? 0 : p.window_floor.as<const int64_t>()[b];
  const int64_t ring_rows = p.rings.codes.dim(1);
  const int64_t oldest = std::max({int64_t{0}, floor, position - p.window + 1});
  for (int64_t t = oldest; t <= position; ++t) {
    if (t >= step_begin) {
      const std::optional<int64_t> row = row_at(p.rows, b, t, p.window_codes.dim(0));
      if (!row) continue;
      keys.push_back({p.window_codes.row<const uint8_t>(*row),
                      p.window_scales.row<const uint8_t>(*row), false});
    } else {
      const int64_t row = t % ring_rows;
      if (p.rings.tags.row<const int64_t>(slot)[row] != t) continue;
      keys.push_back({p.rings.codes.row<const uint8_t>(slot) + row * p.rings.codes.dim(2),
                      p.rings.scales.row<const uint8_t>(slot) + row * p.rings.scales.dim(2),
                      false});
    }
  }
}

/// The selected compressed entries of row b, ascending.
void append_entries(const SparseAttentionParams& p, int64_t b, std::vector<Key>& keys) {
  if (p.selected.empty()) return;
  const int64_t slot = p.rows.slot.as<const int32_t>()[b];
  const auto* selected = p.selected.row<const int32_t>(b);
  for (int32_t i = 0; i < p.num_selected.as<const int32_t>()[b]; ++i) {
    const StoredEntry entry = entry_at(p.pages, p.slots, slot, selected[i]);
    keys.push_back({entry.codes, entry.scales, true});
  }
}

void dequantize(const Key& key, std::span<float> out) {
  if (key.is_entry) {
    dequantize_fp4_kv(key.codes, key.scales, out);
  } else {
    dequantize_fp8(key.codes, key.scales, out);
  }
}

/// The running softmax of one head (spec/model.md §10 item 7). The sink is not in the maximum.
struct Head {
  explicit Head(size_t head_dim) : sum(head_dim) {}

  float max = -1e30F;
  float denominator = 0;
  std::vector<float> sum;  // [D]: Σ p · kv
};

/// Adds one tile of `count` keys [count, D] to a head. `scale` is D^-½.
void add_tile(const Context& context, const float* q, const float* keys, size_t count, float scale,
              Head& head) {
  const size_t head_dim = head.sum.size();
  std::array<float, kAttentionTile> p{};
  float max = head.max;
  for (size_t j = 0; j < count; ++j) {
    p[j] = dot(q, keys + j * head_dim, static_cast<int64_t>(head_dim)) * scale;
    max = std::max(max, p[j]);
  }
  float tile_sum = 0;
  for (size_t j = 0; j < count; ++j) {
    p[j] = std::exp(p[j] - max);
    tile_sum += p[j];
  }
  const float rescale = std::exp(head.max - max);
  head.denominator = head.denominator * rescale + tile_sum;
  for (float& v : head.sum) v *= rescale;
  for (size_t j = 0; j < count; ++j) {
    const float weight = context.act(p[j]);  // the denominator took the unrounded p
    const float* key = keys + j * head_dim;
    for (size_t i = 0; i < head_dim; ++i) head.sum[i] += weight * key[i];
  }
  head.max = max;
}

void attend_row(const Context& context, const SparseAttentionParams& p, int64_t b) {
  const int64_t num_heads = p.q.dim(1);
  const auto head_dim = static_cast<size_t>(p.q.dim(2));
  const float scale = 1.0F / std::sqrt(static_cast<float>(head_dim));
  std::vector<Key> keys;
  append_window(p, b, keys);
  append_entries(p, b, keys);

  std::vector<float> q = load_row(p.q, b);
  std::vector<Head> heads(static_cast<size_t>(num_heads), Head(head_dim));
  std::vector<float> tile(kAttentionTile * head_dim);
  for (size_t begin = 0; begin < keys.size(); begin += kAttentionTile) {
    const size_t count = std::min(size_t{kAttentionTile}, keys.size() - begin);
    for (size_t j = 0; j < count; ++j) {
      dequantize(keys[begin + j], std::span(tile).subspan(j * head_dim, head_dim));
    }
    for (size_t h = 0; h < heads.size(); ++h) {
      add_tile(context, &q[h * head_dim], tile.data(), count, scale, heads[h]);
    }
  }

  std::vector<float> out(heads.size() * head_dim);
  for (size_t h = 0; h < heads.size(); ++h) {
    const float sink = std::exp(p.sink.as<const float>()[h] - heads[h].max);
    for (size_t i = 0; i < head_dim; ++i) {
      out[h * head_dim + i] = context.act(heads[h].sum[i] / (heads[h].denominator + sink));
    }
  }
  if (!p.trace_core.empty()) store_row(out, p.trace_core, b);
  for (int64_t h = 0; h < num_heads; ++h) {
    // Values carried the rotation of their keys.
    rotate(context, row_of(out, h, head_dim), p.rope, p.rows.position.as<const int64_t>()[b], true);
  }
  store_row(out, p.out, b);
}

}  // namespace

void sparse_attention(const Context& context, const SparseAttentionParams& p) {
  context.pool->parallel_for(p.q.dim(0), 1, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) attend_row(context, p, b);
  });
}

void window_store(const Context& /*context*/, const WindowStoreParams& p) {
  const int64_t rows = p.window_codes.dim(0);
  const int64_t ring_rows = p.rings.codes.dim(1);
  for (int64_t b = 0; b < rows; ++b) {
    if (is_overwritten(p.rows, b, ring_rows, rows)) continue;
    const int64_t position = p.rows.position.as<const int64_t>()[b];
    const int64_t slot = p.rows.slot.as<const int32_t>()[b];
    const int64_t row = position % ring_rows;
    const int64_t codes = p.rings.codes.dim(2);
    const int64_t scales = p.rings.scales.dim(2);
    std::copy_n(p.window_codes.row<const uint8_t>(b), codes,
                p.rings.codes.row<uint8_t>(slot) + row * codes);
    std::copy_n(p.window_scales.row<const uint8_t>(b), scales,
                p.rings.scales.row<uint8_t>(slot) + row * scales);
    p.rings.tags.row<int64_t>(slot)[row] = position;
  }
}

}  // namespace deepinfer::ops::reference
