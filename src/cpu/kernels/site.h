#pragma once

#include <cmath>
#include <cstdint>

#include "cpu/kernels/math.h"
#include "cpu/kernels/rows.h"
#include "cpu/row_kernels.h"

// Kernels of the residual streams (spec/model.md §2), the compressor's pairs (§4) and Engram's gate
// (§7). Bound: memory; a row's streams are read once and written once.
namespace deepinfer::cpu {

template <typename V>
void collapse_row(const BFloat16* streams, int64_t m, int64_t d, const float* coefficients,
                  BFloat16* out) {
  for_vectors<V>(d, [&](int64_t i, auto load, auto store) {
    V sum = V::zero();
    for (int64_t j = 0; j < m; ++j) {
      sum = fma(V::set1(coefficients[j]), load(streams + j * d + i), sum);
    }
    store(sum, out + i);
  });
}

template <typename V>
void expand_row(const BFloat16* y, const float* post, const float* comb, int64_t m, int64_t d,
                BFloat16* streams) {
  for_vectors<V>(d, [&](int64_t i, auto load, auto store) {
    V stream[kMaxStreams];  // each S'[k] reads every S[j]
    for (int64_t j = 0; j < m; ++j) stream[j] = load(streams + j * d + i);
    const V result = load(y + i);
    for (int64_t k = 0; k < m; ++k) {
      V sum = V::set1(post[k]) * result;
      for (int64_t j = 0; j < m; ++j) sum = fma(V::set1(comb[j * m + k]), stream[j], sum);
      store(sum, streams + k * d + i);
    }
  });
}

template <typename V>
void mean_streams_row(const BFloat16* streams, int64_t m, int64_t d, BFloat16* out) {
  const V count = V::set1(static_cast<float>(m));
  for_vectors<V>(d, [&](int64_t i, auto load, auto store) {
    V sum = V::zero();
    for (int64_t j = 0; j < m; ++j) sum = sum + load(streams + j * d + i);
    store(sum / count, out + i);
  });
}

/// out[i] = f(x[i]) for n floats; out may be x.
template <typename V, typename F>
void map_floats(const float* x, int64_t n, float* out, const F& f) {
  for_vectors<V>(n, [&](int64_t i, auto load, auto store) { store(f(load(x + i)), out + i); });
}

template <typename V>
void evaluate(Function function, const float* x, int64_t n, float* y) {
  switch (function) {
    case Function::kExp:
      return map_floats<V>(x, n, y, [](V v) { return exp(v); });
    case Function::kLog:
      return map_floats<V>(x, n, y, [](V v) { return log(v); });
    case Function::kLog1p:
      return map_floats<V>(x, n, y, [](V v) { return log1p(v); });
    case Function::kSigmoid:
      return map_floats<V>(x, n, y, [](V v) { return sigmoid(v); });
    case Function::kSoftplus:
      return map_floats<V>(x, n, y, [](V v) { return softplus(v); });
  }
}

/// The mixing matrix [m, m] from its logits, in place: softmax over k plus ε, then columns and rows
/// normalised in turn, ending on columns. kStreams > 0 is m, known to the compiler.
template <typename V, int kStreams>
void sinkhorn(float* comb, int64_t streams, float eps, int64_t iterations) {
  const int64_t m = kStreams > 0 ? kStreams : streams;
  for (int64_t j = 0; j < m; ++j) {
    float* row = comb + j * m;
    float largest = row[0];
    for (int64_t k = 1; k < m; ++k) largest = row[k] > largest ? row[k] : largest;
    const V top = V::set1(largest);
    map_floats<V>(row, m, row, [&](V x) { return exp(x - top); });
    float sum = 0;
    for (int64_t k = 0; k < m; ++k) sum += row[k];
    for (int64_t k = 0; k < m; ++k) row[k] = row[k] / sum + eps;
  }
  const auto normalize_columns = [&] {
    float sums[kMaxStreams] = {};
    for (int64_t j = 0; j < m; ++j) {
      for (int64_t k = 0; k < m; ++k) sums[k] += comb[j * m + k];
    }
    for (int64_t k = 0; k < m; ++k) sums[k] += eps;
    for (int64_t j = 0; j < m; ++j) {
      for (int64_t k = 0; k < m; ++k) comb[j * m + k] /= sums[k];
    }
  };
  normalize_columns();
  for (int64_t i = 1; i < iterations; ++i) {
    float sums[kMaxStreams] = {};
    for (int64_t j = 0; j < m; ++j) {
      for (int64_t k = 0; k < m; ++k) sums[j] += comb[j * m + k];
    }
    for (int64_t j = 0; j < m; ++j) {
      for (int64_t k = 0; k < m; ++k) comb[j * m + k] /= sums[j] + eps;
    }
    normalize_columns();
  }
}

template <typename V>
void mix_row(const MixTask& t) {
  const int64_t m = t.streams;
  // The statistic's factor is applied after the product.
  const V factor = V::set1(1.0F / std::sqrt(t.mean + t.eps));
  const auto logits = [&](int64_t first, int64_t n, float scale, float* out) {
    for_vectors<V>(n, [&](int64_t i, auto load, auto store) {
      const V z = load(t.a + first + i) * factor;
      store(fma(z, V::set1(scale), load(t.base + first + i)), out + i);
    });
  };
  const V hc_eps = V::set1(t.hc_eps);
  logits(0, m, t.scale[0], t.pre);
  map_floats<V>(t.pre, m, t.pre, [&](V x) { return sigmoid(x) + hc_eps; });
  logits(m, m, t.scale[1], t.post);
  map_floats<V>(t.post, m, t.post, [](V x) { return V::set1(2.0F) * sigmoid(x); });
  logits(2 * m, m * m, t.scale[2], t.comb);
  if (m == 4) {
    sinkhorn<V, 4>(t.comb, m, t.hc_eps, t.iterations);
  } else {
    sinkhorn<V, 0>(t.comb, m, t.hc_eps, t.iterations);
  }
}

template <typename V>
void pool_pair_row(const float* even_u, const float* even_g, const float* odd_u, const float* odd_g,
                   int64_t n, BFloat16* out) {
  for_vectors<V>(n, [&](int64_t i, auto load, auto store) {
    const V g0 = load(even_g + i);
    const V g1 = load(odd_g + i);
    const V largest = max(g0, g1);
    const V first = exp(g0 - largest);
    const V second = exp(g1 - largest);
    const V sum = first + second;
    store(fma(first / sum, load(even_u + i), second / sum * load(odd_u + i)), out + i);
  });
}

/// S ← S + gate · value, gate = sigmoid(copysign(√max(|dot|, 1e-6), dot)).
template <typename V>
float gate_row(const GateTask& t) {
  float gate = 0;
  if (!t.dead) {
    V products = V::zero();
    V streams = V::zero();
    V keys = V::zero();
    for_vectors<V>(t.d, [&](int64_t i, auto load, auto) {
      const V s = load(t.stream + i);
      const V k = load(t.key + i);
      products = fma(s * load(t.weight + i), k, products);
      streams = fma(s, s, streams);
      keys = fma(k, k, keys);
    });
    const auto d = static_cast<float>(t.d);
    const float stream_rms = std::sqrt(reduce_add(streams) / d + t.eps);
    const float key_rms = std::sqrt(reduce_add(keys) / d + t.eps);
    const float dot = reduce_add(products) / (stream_rms * key_rms) / std::sqrt(d);
    const float size = std::fabs(dot) < 1e-6F ? 1e-6F : std::fabs(dot);
    float lanes[16];
    sigmoid(V::set1(std::copysign(std::sqrt(size), dot))).store(lanes);
    gate = lanes[0];
  }
  const V factor = V::set1(gate);
  for_vectors<V>(t.d, [&](int64_t i, auto load, auto store) {
    store(fma(factor, load(t.value + i), load(t.stream + i)), t.stream + i);
  });
  return gate;
}

}  // namespace deepinfer::cpu
