#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "cpu/kernels/math.h"

// The arithmetic of drawing tokens (spec/model.md §10 items 14 and 15), in double with explicit fma
// and own polynomials: the C library's differ between machines. Relative error below 2^-50.
namespace deepinfer::cpu {

/// e^x for x <= 0; 0 below -708. NaN gives a number: callers have sorted it out.
template <typename V>
double exp_double(double x) {
  x = x < -708 ? -708 : x;
  constexpr double kRound = 0x1.8p52;
  const double shifted = x * 0x1.71547652b82fep+0 + kRound;  // 1/ln 2
  const double n = shifted - kRound;
  double r = std::fma(n, -0x1.62e42fefa39efp-1, x);
  r = std::fma(n, -0x1.abc9e3b39803fp-56, r);
  // Taylor's series on |r| <= ln 2 / 2: the first term left out is 0.35^14/14!.
  double p = 1.0 / 6227020800;
  p = std::fma(p, r, 1.0 / 479001600);
  p = std::fma(p, r, 1.0 / 39916800);
  p = std::fma(p, r, 1.0 / 3628800);
  p = std::fma(p, r, 1.0 / 362880);
  p = std::fma(p, r, 1.0 / 40320);
  p = std::fma(p, r, 1.0 / 5040);
  p = std::fma(p, r, 1.0 / 720);
  p = std::fma(p, r, 1.0 / 120);
  p = std::fma(p, r, 1.0 / 24);
  p = std::fma(p, r, 1.0 / 6);
  p = std::fma(p, r, 0.5);
  const double value = std::fma(p, r * r, r) + 1;
  // The whole number n is in the low bits of `shifted`.
  const uint64_t exponent = std::bit_cast<uint64_t>(shifted) << 52;
  const double scaled = std::bit_cast<double>(std::bit_cast<uint64_t>(value) + exponent);
  return x <= -708 ? 0 : scaled;
}

/// ln x for a normal x > 0.
template <typename V>
double log_double(double x) {
  const auto bits = std::bit_cast<uint64_t>(x);
  // x = m · 2^e with m in [√½, √2).
  const auto e = static_cast<int64_t>(bits - 0x3FE6A09E667F3BCDU) >> 52;
  const double m = std::bit_cast<double>(bits - (static_cast<uint64_t>(e) << 52));
  // fdlibm: ln(1 + f) = f - f²/2 + s·(f²/2 + R(s²)), s = f/(2 + f).
  const double f = m - 1;
  const double s = f / (2 + f);
  const double z = s * s;
  double r = std::fma(z, 1.479819860511658591e-01, 1.531383769920937332e-01);
  r = std::fma(z, r, 1.818357216161805012e-01);
  r = std::fma(z, r, 2.222219843214978396e-01);
  r = std::fma(z, r, 2.857142874366239149e-01);
  r = std::fma(z, r, 3.999999999940941908e-01);
  r = std::fma(z, r, 6.666666666666735130e-01);
  const double half = 0.5 * f * f;
  const auto n = static_cast<double>(e);
  const double tail = std::fma(s, std::fma(z, r, half), n * 1.90821492927058770002e-10);
  return std::fma(n, 6.93147180369123816490e-01, f - (half - tail));
}

/// gumbel_noise() of ops/noise.h: -ln(-ln(1 - v)), v = (word + ½)·2^-32; 1 - v is exact.
template <typename V>
double gumbel_double(uint32_t word) {
  const double v = (static_cast<double>(word) + 0.5) * 0x1p-32;
  return -log_double<V>(-log_double<V>(1 - v));
}

/// The largest of n logits; NaN counts as -∞.
template <typename V>
float largest_logit(const float* logits, int64_t n) {
  V best = V::set1(-INFINITY);
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) best = max(V::load(logits + i), best);
  float result = reduce_max(best);
  for (; i < n; ++i) result = logits[i] > result ? logits[i] : result;
  return result;
}

/// ln Σ exp(logit - max): eight sums that take turns, added in order. An equal logit adds 1 (∞ - ∞
/// would be NaN), a NaN what -∞ adds.
template <typename V>
double log_sum_exp(const float* logits, int64_t n, float max) {
  double sums[8] = {};
  const auto term = [max](float logit) {
    const float x = logit != logit ? -INFINITY : logit;
    const double below = static_cast<double>(x) - static_cast<double>(max);
    return x == max ? 1.0 : exp_double<V>(below < -708 ? -708 : below);
  };
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    for (int k = 0; k < 8; ++k) sums[k] += term(logits[i + k]);
  }
  for (int k = 0; i < n; ++k, ++i) sums[k] += term(logits[i]);
  double sum = 0;
  for (const double part : sums) sum += part;
  return log_double<V>(sum);
}

}  // namespace deepinfer::cpu
