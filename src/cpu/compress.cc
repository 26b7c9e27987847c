#include "ops/compress.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "cpu/linear.h"
#include "cpu/operations.h"
#include "cpu/rows.h"
#include "ops/addresses.h"

namespace deepinfer::cpu {
namespace {

/// The two fp32 projections of one token at ratio 2.
struct Token {
  const float* u;
  const float* g;
};

/// Scratch tensors of one call.
struct Scratch {
  TensorView u;         // [B, D] bf16 at ratio 1, f32 at ratio 2
  TensorView g;         // [B, D] f32 at ratio 2
  int32_t* completing;  // [count] rows that complete an entry and may write it
  int64_t count;
  TensorView latents;  // [count, D] bf16
  TensorView keys;     // [count, Di] bf16
};

TensorView take(const Context& context, DType dtype, int64_t rows, int64_t width) {
  return {context.workspace.shared().take<uint8_t>(rows * width * size_of(dtype)),
          dtype,
          {rows, width}};
}

Scratch make_scratch(const Context& context, const ops::CompressParams& p) {
  const int64_t rows = p.x.dim(0);
  const int64_t head_dim = p.wkv.dim(0);
  const bool is_pair = p.pages.ratio == 2;
  Scratch s{.u = take(context, is_pair ? DType::kF32 : DType::kBF16, rows, head_dim),
            .g = {},
            .completing = context.workspace.shared().take<int32_t>(rows),
            .count = 0,
            .latents = {},
            .keys = {}};
  if (is_pair) s.g = take(context, DType::kF32, rows, head_dim);
  const auto* position = p.rows.position.as<const int64_t>();
  const auto* role = p.rows.role.as<const uint8_t>();
  for (int64_t b = 0; b < rows; ++b) {
    if (role[b] == static_cast<uint8_t>(ops::RowRole::kReplay)) continue;
    if ((position[b] + 1) % p.pages.ratio == 0) s.completing[s.count++] = static_cast<int32_t>(b);
  }
  s.latents = take(context, DType::kBF16, s.count, head_dim);
  s.keys = take(context, DType::kBF16, s.count, p.index_wk.dim(0));
  return s;
}

/// Where the slot keeps u, then g, of an even position.
float* pending_at(const ops::CompressParams& p, int64_t slot, int64_t position) {
  const int64_t place = position / 2 % ops::kPendingRows;
  return p.pending.row<float>(slot) + place * 2 * p.wkv.dim(0);
}

/// The token before that of row b: a row of this step, or else one that waits.
Token partner_of(const ops::CompressParams& p, const Scratch& s, int64_t b) {
  const int64_t position = p.rows.position.as<const int64_t>()[b] - 1;
  if (position >= p.rows.span_first.as<const int64_t>()[b]) {
    const std::optional<int64_t> row = ops::row_at(p.rows, b, position, p.x.dim(0));
    DEEPINFER_CHECK(row.has_value(), "compress: position {} is in the step but does not run here",
                    position);
    return {s.u.row<const float>(*row), s.g.row<const float>(*row)};
  }
  const float* waiting = pending_at(p, p.rows.slot.as<const int32_t>()[b], position);
  return {waiting, waiting + p.wkv.dim(0)};
}

/// The latents of the completing rows, before rotation.
void make_latents(const Context& context, const ops::CompressParams& p, const Scratch& s) {
  const int64_t head_dim = p.wkv.dim(0);
  context.parallel_for(s.count, 4, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t b = s.completing[i];
      auto* latent = s.latents.row<BFloat16>(i);
      const BFloat16* raw = latent;
      if (p.pages.ratio == 1) {
        raw = s.u.row<const BFloat16>(b);
      } else {
        const Token even = partner_of(p, s, b);
        context.kernels.rows.pool_pair(even.u, even.g, s.u.row<const float>(b),
                                       s.g.row<const float>(b), head_dim, latent);
      }
      rms_norm(context, raw, p.norm, p.eps, latent);
      if (p.trace_latent.empty()) continue;
      auto* trace = p.trace_latent.row<float>(b);
      for (int64_t c = 0; c < head_dim; ++c) trace[c] = to_float(latent[c]);
    }
  });
}

/// Rotates latents and raw index keys at the position of the entry's first token and writes both.
void store_entries(const Context& context, const ops::CompressParams& p, const Scratch& s) {
  const int64_t head_dim = p.wkv.dim(0);
  const int64_t index_dim = p.index_wk.dim(0);
  const int64_t pairs = p.rope.inv_freq.dim(0);
  context.parallel_for(s.count, 4, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t b = s.completing[i];
      const int64_t entry = p.rows.position.as<const int64_t>()[b] / p.pages.ratio;
      const ops::StoredEntry stored =
          ops::entry_at(p.pages, p.slots, p.rows.slot.as<const int32_t>()[b], entry);
      const Rotation rotation(context.fresh_arena(), pairs);
      rotation.fill(context, entry * p.pages.ratio, p.rope, 1);
      const auto rotate = [&](BFloat16* row, int64_t size) {
        context.kernels.rows.rotate(row + size - 2 * pairs, rotation.cosine, rotation.sine, pairs);
      };

      auto* latent = s.latents.row<BFloat16>(i);
      rotate(latent, head_dim);
      context.kernels.rows.quantize_fp4_kv(latent, head_dim, stored.codes, stored.scales);

      auto* key = s.keys.row<BFloat16>(i);
      rms_norm(context, key, p.index_norm, p.eps, key);
      rotate(key, index_dim);
      context.kernels.rows.quantize_fp4_index(key, index_dim, stored.key_codes, stored.key_scales);
    }
  });
}

/// Keeps u and g of the even positions that later steps may need.
void store_pending(const ops::CompressParams& p, const Scratch& s) {
  const int64_t head_dim = p.wkv.dim(0);
  const auto bytes = static_cast<size_t>(head_dim) * sizeof(float);
  const int64_t rows = p.x.dim(0);
  for (int64_t b = 0; b < rows; ++b) {
    const int64_t position = p.rows.position.as<const int64_t>()[b];
    if (position % 2 != 0 || ops::is_overwritten(p.rows, b, 2 * ops::kPendingRows, rows)) continue;
    float* waiting = pending_at(p, p.rows.slot.as<const int32_t>()[b], position);
    std::memcpy(waiting, s.u.row<const float>(b), bytes);
    std::memcpy(waiting + head_dim, s.g.row<const float>(b), bytes);
  }
}

}  // namespace

void compress(const Context& context, const ops::CompressParams& p) {
  if (p.x.dim(0) == 0) return;
  const Scratch s = make_scratch(context, p);
  const bool is_pair = p.pages.ratio == 2;
  const Product products[] = {{.weight = {.weight = p.wkv, .scale = {}}, .x = p.x, .y = s.u},
                              {.weight = {.weight = p.wgate, .scale = {}}, .x = p.x, .y = s.g}};
  linear(context, std::span(products).first(is_pair ? 2 : 1));
  make_latents(context, p, s);
  if (s.count > 0) {
    linear(context, {.weight = {.weight = p.index_wk, .scale = {}}, .x = s.latents, .y = s.keys});
  }
  store_entries(context, p, s);
  // Last: the step's first rows read what its later rows overwrite.
  if (is_pair) store_pending(p, s);
}

}  // namespace deepinfer::cpu
