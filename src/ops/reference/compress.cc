#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "ops/addresses.h"
#include "ops/reference/reference.h"
#include "tensor/quantize.h"

namespace deepinfer::ops::reference {
namespace {

/// The two fp32 projections of one token at ratio 2.
struct Token {
  const float* u;
  const float* g;
};

/// The batch rows that complete an entry and may write it.
std::vector<int64_t> completing_rows(const CompressParams& p) {
  const auto* position = p.rows.position.as<const int64_t>();
  const auto* role = p.rows.role.as<const uint8_t>();
  std::vector<int64_t> rows;
  for (int64_t b = 0; b < p.x.dim(0); ++b) {
    if (role[b] == static_cast<uint8_t>(RowRole::kReplay)) continue;
    if ((position[b] + 1) % p.pages.ratio == 0) rows.push_back(b);
  }
  return rows;
}

/// Where the slot keeps u, then g, of an even position.
float* pending_at(const CompressParams& p, int64_t slot, int64_t position) {
  const int64_t place = position / 2 % kPendingRows;
  return p.pending.row<float>(slot) + place * 2 * p.wkv.dim(0);
}

/// The token before that of row b: a row of this step, or else one that waits.
Token partner_of(const CompressParams& p, const float* u, const float* g, int64_t b) {
  const int64_t head_dim = p.wkv.dim(0);
  const int64_t position = p.rows.position.as<const int64_t>()[b] - 1;
  if (position >= p.rows.span_first.as<const int64_t>()[b]) {
    const std::optional<int64_t> row = row_at(p.rows, b, position, p.x.dim(0));
    DEEPINFER_CHECK(row.has_value(), "compress: position {} is in the step but does not run here",
                    position);
    return {u + *row * head_dim, g + *row * head_dim};
  }
  const float* waiting = pending_at(p, p.rows.slot.as<const int32_t>()[b], position);
  return {waiting, waiting + head_dim};
}

/// Σ softmax(g) ⊙ u over the two tokens of an entry, channel by channel, → act.
void pool(const Context& context, const Token& even, const Token& odd, std::span<float> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    const float max = std::max(even.g[i], odd.g[i]);
    const float first = std::exp(even.g[i] - max);
    const float second = std::exp(odd.g[i] - max);
    const float sum = first + second;
    out[i] = context.act(first / sum * even.u[i] + second / sum * odd.u[i]);
  }
}

/// The latents of the completing rows, before rotation.
std::vector<float> latents_of(const Context& context, const CompressParams& p,
                              std::span<const int64_t> completing, std::span<const float> u,
                              std::span<const float> g) {
  const int64_t head_dim = p.wkv.dim(0);
  std::vector<float> latents(completing.size() * static_cast<size_t>(head_dim));
  const auto count = static_cast<int64_t>(completing.size());
  context.pool->parallel_for(count, 4, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t b = completing[static_cast<size_t>(i)];
      const std::span<float> latent = row_of(latents, i, static_cast<size_t>(head_dim));
      if (p.pages.ratio == 1) {
        std::copy_n(u.data() + b * head_dim, head_dim, latent.begin());
      } else {
        const Token odd{u.data() + b * head_dim, g.data() + b * head_dim};
        pool(context, partner_of(p, u.data(), g.data(), b), odd, latent);
      }
      rms_norm(context, latent, p.norm, p.eps);
    }
  });
  return latents;
}

/// Rotates latents and raw index keys at the position of the entry's first token and writes both.
void store_entries(const Context& context, const CompressParams& p,
                   std::span<const int64_t> completing, std::span<float> latents,
                   std::span<float> keys) {
  const auto count = static_cast<int64_t>(completing.size());
  context.pool->parallel_for(count, 4, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t b = completing[static_cast<size_t>(i)];
      const int64_t entry = p.rows.position.as<const int64_t>()[b] / p.pages.ratio;
      const StoredEntry stored =
          entry_at(p.pages, p.slots, p.rows.slot.as<const int32_t>()[b], entry);

      const std::span<float> latent = row_of(latents, i, static_cast<size_t>(p.wkv.dim(0)));
      rotate(context, latent, p.rope, entry * p.pages.ratio);
      quantize_fp4_kv(latent, stored.codes, stored.scales);

      const std::span<float> key = row_of(keys, i, static_cast<size_t>(p.index_wk.dim(0)));
      rms_norm(context, key, p.index_norm, p.eps);
      rotate(context, key, p.rope, entry * p.pages.ratio);
      quantize_fp4_index(key, stored.key_codes, stored.key_scales);
    }
  });
}

/// Keeps u and g of the even positions that later steps may need.
void store_pending(const CompressParams& p, std::span<const float> u, std::span<const float> g) {
  const int64_t head_dim = p.wkv.dim(0);
  for (int64_t b = 0; b < p.x.dim(0); ++b) {
    const int64_t position = p.rows.position.as<const int64_t>()[b];
    if (position % 2 != 0 || is_overwritten(p.rows, b, 2 * kPendingRows, p.x.dim(0))) continue;
    float* waiting = pending_at(p, p.rows.slot.as<const int32_t>()[b], position);
    std::copy_n(u.data() + b * head_dim, head_dim, waiting);
    std::copy_n(g.data() + b * head_dim, head_dim, waiting + head_dim);
  }
}

std::vector<float> project(const Context& context, const TensorView& weight,
                           std::span<const float> x, int64_t num_rows, ResultRounding rounding) {
  std::vector<float> y(static_cast<size_t>(num_rows * weight.dim(0)));
  linear(context, {.weight = weight, .scale = {}}, x, num_rows, y, InputRounding::kNone, rounding);
  return y;
}

}  // namespace

void compress(const Context& context, const CompressParams& p) {
  const int64_t rows = p.x.dim(0);
  const bool is_pair = p.pages.ratio == 2;
  const std::vector<float> x = load_rows(p.x);
  const std::vector<float> u =
      project(context, p.wkv, x, rows, is_pair ? ResultRounding::kNone : ResultRounding::kAct);
  std::vector<float> g;
  if (is_pair) g = project(context, p.wgate, x, rows, ResultRounding::kNone);

  const std::vector<int64_t> completing = completing_rows(p);
  const auto count = static_cast<int64_t>(completing.size());
  std::vector<float> latents = latents_of(context, p, completing, u, g);
  if (!p.trace_latent.empty()) {
    const auto head_dim = static_cast<size_t>(p.wkv.dim(0));
    for (int64_t i = 0; i < count; ++i) {
      store_row(row_of(latents, i, head_dim), p.trace_latent, completing[static_cast<size_t>(i)]);
    }
  }
  std::vector<float> keys = project(context, p.index_wk, latents, count, ResultRounding::kAct);
  store_entries(context, p, completing, latents, keys);
  // Last: the step's first rows read what its later rows overwrite.
  if (is_pair) store_pending(p, u, g);
}

}  // namespace deepinfer::ops::reference
