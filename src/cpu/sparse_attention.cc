#include "ops/sparse_attention.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "cpu/operations.h"
#include "cpu/rows.h"
#include "ops/addresses.h"

namespace deepinfer::cpu {
namespace {

static_assert(kTileKeys == ops::kAttentionTile);

/// Writes the keys of row b: the window's, oldest first, then the selected entries, ascending.
/// Window positions of the step come from window_codes, older ones from the ring. A position whose
/// row does not run in this layer, or whose ring row holds another position, has no key.
int64_t list_keys(const ops::SparseAttentionParams& p, int64_t b, StoredKey* keys) {
  const int64_t position = p.rows.position.as<const int64_t>()[b];
  const int64_t step_begin = p.rows.span_first.as<const int64_t>()[b];
  const int64_t slot = p.rows.slot.as<const int32_t>()[b];
  const int64_t floor = p.window_floor.empty() ? 0 : p.window_floor.as<const int64_t>()[b];
  const auto* tags = p.rings.tags.row<const int64_t>(slot);
  const auto* ring_codes = p.rings.codes.row<const uint8_t>(slot);
  const auto* ring_scales = p.rings.scales.row<const uint8_t>(slot);
  const int64_t ring_rows = p.rings.codes.dim(1);
  int64_t count = 0;
  for (int64_t t = std::max({int64_t{0}, floor, position - p.window + 1}); t <= position; ++t) {
    if (t >= step_begin) {
      const std::optional<int64_t> row = ops::row_at(p.rows, b, t, p.window_codes.dim(0));
      if (!row) continue;
      keys[count++] = {p.window_codes.row<const uint8_t>(*row),
                       p.window_scales.row<const uint8_t>(*row), false};
    } else {
      const int64_t row = t % ring_rows;
      if (tags[row] != t) continue;
      keys[count++] = {ring_codes + row * p.rings.codes.dim(2),
                       ring_scales + row * p.rings.scales.dim(2), false};
    }
  }
  if (p.selected.empty()) return count;
  const auto* selected = p.selected.row<const int32_t>(b);
  for (int32_t i = 0; i < p.num_selected.as<const int32_t>()[b]; ++i) {
    const ops::StoredEntry entry = ops::entry_at(p.pages, p.slots, slot, selected[i]);
    keys[count++] = {entry.codes, entry.scales, true};
  }
  return count;
}

}  // namespace

void sparse_attention(const Context& context, const ops::SparseAttentionParams& p) {
  const int64_t rows = p.q.dim(0);
  const int64_t heads = p.q.dim(1);
  const int64_t head_dim = p.q.dim(2);
  if (rows == 0) return;
  // Few rows for many threads: heads are shared out, too. Each group decodes the keys for itself,
  // so there are no more groups than threads need, in whole register blocks of four heads.
  const int64_t threads = context.pool.num_threads();
  const int64_t wanted = std::clamp<int64_t>((threads + rows - 1) / rows, 1, (heads + 3) / 4);
  const int64_t group_heads = ((heads + wanted - 1) / wanted + 3) / 4 * 4;
  const int64_t groups = (heads + group_heads - 1) / group_heads;
  const int64_t most_keys = p.window + (p.selected.empty() ? 0 : p.selected.dim(1));
  context.parallel_for(rows * groups, 1, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t b = task / groups;
      const int64_t first = task % groups * group_heads;
      const int64_t count = std::min(group_heads, heads - first);
      Arena& arena = context.fresh_arena();
      auto* keys = arena.take<StoredKey>(most_keys);
      const int64_t num_keys = list_keys(p, b, keys);
      const Rotation back(arena, p.rope.inv_freq.dim(0));
      back.fill(context, p.rows.position.as<const int64_t>()[b], p.rope, -1);
      const int64_t offset = first * head_dim;
      context.kernels.rows.attend(
          {.q = p.q.row<const BFloat16>(b) + offset,
           .keys = keys,
           .num_keys = num_keys,
           .sink = p.sink.as<const float>() + first,
           .heads = count,
           .head_dim = head_dim,
           .cosine = back.cosine,
           .sine = back.sine,
           .num_pairs = p.rope.inv_freq.dim(0),
           .out = p.out.row<BFloat16>(b) + offset,
           .trace = p.trace_core.empty() ? nullptr : p.trace_core.row<float>(b) + offset,
           .scratch = arena.take<float>(attention_scratch(count, head_dim))});
    }
  });
}

void window_store(const Context& /*context*/, const ops::WindowStoreParams& p) {
  const int64_t rows = p.window_codes.dim(0);
  const int64_t ring_rows = p.rings.codes.dim(1);
  const int64_t codes = p.rings.codes.dim(2);
  const int64_t scales = p.rings.scales.dim(2);
  for (int64_t b = 0; b < rows; ++b) {
    if (ops::is_overwritten(p.rows, b, ring_rows, rows)) continue;
    const int64_t position = p.rows.position.as<const int64_t>()[b];
    const int64_t slot = p.rows.slot.as<const int32_t>()[b];
    const int64_t row = position % ring_rows;
    std::memcpy(p.rings.codes.row<uint8_t>(slot) + row * codes,
                p.window_codes.row<const uint8_t>(b), static_cast<size_t>(codes));
    std::memcpy(p.rings.scales.row<uint8_t>(slot) + row * scales,
                p.window_scales.row<const uint8_t>(b), static_cast<size_t>(scales));
    p.rings.tags.row<int64_t>(slot)[row] = position;
  }
}

}  // namespace deepinfer::cpu
