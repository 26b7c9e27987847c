#include <array>

#include "cpu/linear.h"
#include "cpu/operations.h"

namespace deepinfer::cpu {
namespace {

/// The key of one row: norm, rotation, FP8.
void finish_key(const Context& context, const ops::QkvParams& p, int64_t b, BFloat16* key,
                const Rotation& rotation) {
  const int64_t head_dim = p.wkv.rows();
  const int64_t pairs = p.rope.inv_freq.dim(0);
  rms_norm(context, key, p.kv_norm, p.eps, key);
  context.kernels.rows.rotate(key + head_dim - 2 * pairs, rotation.cosine, rotation.sine, pairs);
  context.kernels.rows.quantize_fp8(key, head_dim, p.window_codes.row<uint8_t>(b),
                                    p.window_scales.row<uint8_t>(b));
}

/// The low-rank queries and the keys: two products of the same inputs, of which fewer rows may need
/// queries.
void project_inputs(const Context& context, const ops::QkvParams& p, const TensorView& keys) {
  const int64_t queries = p.r.dim(0);
  const std::array<Product, 2> products = {
      Product{
          .weight = p.wq_a, .x = p.x.slice(0, queries), .y = p.r, .rounding = InputRounding::kFp8},
      Product{.weight = p.wkv, .x = p.x, .y = keys, .rounding = InputRounding::kFp8}};
  if (queries == p.x.dim(0)) return linear(context, products);
  linear(context, products[0]);
  linear(context, products[1]);
}

}  // namespace

void qkv(const Context& context, const ops::QkvParams& p) {
  const int64_t rows = p.x.dim(0);
  const int64_t queries = p.q.dim(0);
  const int64_t heads = p.q.dim(1);
  const int64_t head_dim = p.q.dim(2);
  const int64_t pairs = p.rope.inv_freq.dim(0);
  Arena& arena = context.workspace.shared();
  const TensorView keys(arena.take<BFloat16>(rows * p.wkv.rows()), DType::kBF16,
                        {rows, p.wkv.rows()});
  project_inputs(context, p, keys);
  context.parallel_for(queries, 4, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      auto* r = p.r.row<BFloat16>(b);
      rms_norm(context, r, p.q_norm, p.eps, r);
    }
  });

  const TensorView q = p.q.reshape({queries, heads * head_dim});
  linear(context, {.weight = p.wq_b, .x = p.r, .y = q, .rounding = InputRounding::kFp8});
  context.parallel_for(rows, 2, [&](int64_t begin, int64_t end) {
    Arena& own = context.workspace.own(ThreadPool::thread_index());
    own.reset();
    const Rotation rotation(own, pairs);
    for (int64_t b = begin; b < end; ++b) {
      rotation.fill(context, p.position.as<const int64_t>()[b], p.rope, 1);
      finish_key(context, p, b, keys.row<BFloat16>(b), rotation);
      for (int64_t h = 0; b < queries && h < heads; ++h) {
        context.kernels.rows.rotate(q.row<BFloat16>(b) + (h + 1) * head_dim - 2 * pairs,
                                    rotation.cosine, rotation.sine, pairs);
      }
    }
  });
}

}  // namespace deepinfer::cpu
