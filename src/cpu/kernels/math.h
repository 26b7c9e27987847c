#pragma once

#include <cmath>
#include <cstdint>

namespace deepinfer::cpu {

/// The integers beside a vector type of fp32 lanes.
template <typename V>
using IntOf = decltype(bits_of(V::zero()));
/// Two vectors: elements 2l + 1 and 2l of 32 consecutive ones in lane l.
template <typename V>
using PairOf = decltype(V::load_pair(static_cast<const float*>(nullptr)));

// exp, log, log1p and what is made of them, for sixteen lanes: polynomials with explicit fused
// multiply-adds, so that every instruction set gives the same bits. Relative error below 2^-22
// (spec/model.md §10 item 1 asks for 2^-21; tests/cpu/math_test.cc measures it), subnormal results
// flushed, NaN stays NaN.

/// e^x. 0 below -87.3, ∞ above 88.72; NaN stays NaN.
template <typename V>
V exp(V x) {
  // Beyond these, the result is 0 or ∞ anyway. Operand order: a NaN survives min and max.
  x = max(V::set1(-104.0F), min(V::set1(104.0F), x));
  // x = n·ln 2 + r, |r| ≤ ln 2 / 2; ln 2 in two parts, n · the first being exact.
  const V n = round(x * V::set1(1.44269504088896341F));
  V r = fma(n, V::set1(-0.693359375F), x);
  r = fma(n, V::set1(2.12194440e-4F), r);
  // Cephes' expf: e^r = 1 + r + r²·p(r).
  V p = V::set1(1.9875691500e-4F);
  p = fma(p, r, V::set1(1.3981999507e-3F));
  p = fma(p, r, V::set1(8.3334519073e-3F));
  p = fma(p, r, V::set1(4.1665795894e-2F));
  p = fma(p, r, V::set1(1.6666665459e-1F));
  p = fma(p, r, V::set1(5.0000001201e-1F));
  const V value = fma(p, r * r, r) + V::set1(1.0F);
  // 2^n in two factors, since 2^128 has no fp32.
  const IntOf<V> whole = to_int(n);
  const IntOf<V> half = shift_right_signed<1>(whole);
  const auto power = [](IntOf<V> e) { return from_bits(shift_left<23>(e + IntOf<V>::set1(127))); };
  return value * power(half) * power(whole - half);
}

/// ln x for normal x > 0 and +∞.
template <typename V>
V log(V x) {
  // x = m · 2^e with m in [√½, √2): near x = 1 the exponent is 0, so nothing cancels.
  const IntOf<V> bits = bits_of(x);
  const IntOf<V> shifted = bits - IntOf<V>::set1(0x3F3504F3);  // √½
  const IntOf<V> exponent = shift_right_signed<23>(shifted);
  const V m = from_bits(bits - shift_left<23>(exponent));
  const V e = to_float(exponent);
  const V f = m - V::set1(1.0F);
  const V f2 = f * f;
  // Cephes' logf: ln(1 + f) = f - f²/2 + f³·p(f).
  V p = V::set1(7.0376836292e-2F);
  p = fma(p, f, V::set1(-1.1514610310e-1F));
  p = fma(p, f, V::set1(1.1676998740e-1F));
  p = fma(p, f, V::set1(-1.2420140846e-1F));
  p = fma(p, f, V::set1(1.4249322787e-1F));
  p = fma(p, f, V::set1(-1.6668057665e-1F));
  p = fma(p, f, V::set1(2.0000714765e-1F));
  p = fma(p, f, V::set1(-2.4999993993e-1F));
  p = fma(p, f, V::set1(3.3333331174e-1F));
  V small = fma(e, V::set1(-2.12194440e-4F), p * f * f2);
  small = fma(f2, V::set1(-0.5F), small);
  const V value = fma(e, V::set1(0.693359375F), f + small);
  const V infinity = from_bits(IntOf<V>::set1(0x7F800000));
  return select(less(x, infinity), value, x);
}

/// ln(1 + x) for x > -1.
template <typename V>
V log1p(V x) {
  // Kahan: the rounding error of 1 + x cancels in log(w)·x/(w - 1).
  const V one = V::set1(1.0F);
  const V w = one + x;
  const V d = w - one;
  const V value = log(w) * (x / d);
  // Where 1 + x is 1, the result is x; where 1 + x is x (∞ included), it is the logarithm.
  const V large = select(equal(bits_of(d), bits_of(x)), log(w), value);
  return select(equal(bits_of(w), bits_of(one)), x, large);
}

template <typename V>
V sigmoid(V x) {
  const V one = V::set1(1.0F);
  return one / (one + exp(V::zero() - x));
}

/// log1p(exp(x)), x itself above 20.
template <typename V>
V softplus(V x) {
  return select(less(V::set1(20.0F), x), x, log1p(exp(x)));
}

}  // namespace deepinfer::cpu
