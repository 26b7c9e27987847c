#pragma once

#include "cpu/expert_kernels.h"
#include "cpu/kernels/math.h"
#include "cpu/kernels/rows.h"

/// Element-wise kernels of the mixture of experts: see cpu/expert_kernels.h.
namespace deepinfer::cpu {

template <typename V>
void swiglu_row(const float* a, const float* b, int64_t n, float weight, float limit,
                BFloat16* out) {
  const V bound = V::set1(limit > 0 ? limit : 3.402823466e38F);
  const V w = V::set1(weight);
  for_vectors<V>(n, [&](int64_t i, auto load, auto store) {
    // Operand order: a NaN stays one.
    const V gate = min(bound, round_to_bf16(load(a + i)));
    const V up = max(V::zero() - bound, min(bound, round_to_bf16(load(b + i))));
    store(w * (gate * sigmoid(gate) * up), out + i);
  });
}

template <typename V>
void sqrt_softplus_row(float* v, int64_t n, float temperature) {
  const V t = V::set1(temperature);
  for_vectors<V>(
      n, [&](int64_t i, auto load, auto store) { store(sqrt(softplus(load(v + i) / t)), v + i); });
}

template <typename V>
void sigmoid_row(float* v, int64_t n, float temperature) {
  const V t = V::set1(temperature);
  for_vectors<V>(n,
                 [&](int64_t i, auto load, auto store) { store(sigmoid(load(v + i) / t), v + i); });
}

/// The sum runs over sixteen lanes in order, then the fixed tree.
template <typename V>
void softmax_row(float* v, int64_t n, float temperature) {
  float largest = v[0] / temperature;
  for (int64_t i = 0; i < n; ++i) {
    v[i] /= temperature;
    largest = v[i] > largest ? v[i] : largest;
  }
  const V shift = V::set1(largest);
  V sums = V::zero();
  for (int64_t i = 0; i < n; i += 16) {
    const int count = n - i < 16 ? static_cast<int>(n - i) : 16;
    exp(V::load_first(v + i, count) - shift).store_first(v + i, count);
    sums = sums + V::load_first(v + i, count);  // without the lanes past the end
  }
  const V total = V::set1(reduce_add(sums));
  for_vectors<V>(n, [&](int64_t i, auto load, auto store) { store(load(v + i) / total, v + i); });
}

template <typename V>
void add_rows(const BFloat16* const* rows, int64_t count, int64_t n, BFloat16* out) {
  for_vectors<V>(n, [&](int64_t i, auto load, auto store) {
    V sum = V::zero();
    for (int64_t r = 0; r < count; ++r) sum = sum + load(rows[r] + i);
    store(sum, out + i);
  });
}

template <typename V>
constexpr ExpertKernels make_expert_kernels() {
  return {.swiglu = swiglu_row<V>,
          .sqrt_softplus = sqrt_softplus_row<V>,
          .sigmoid = sigmoid_row<V>,
          .softmax = softmax_row<V>,
          .add_rows = add_rows<V>};
}

}  // namespace deepinfer::cpu
