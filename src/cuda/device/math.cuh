#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "cuda/device/host_device.h"

/// Elementary functions with relative error ≤ 2^-21 (spec/model.md §10 item 1). They are
/// polynomials of explicit fma (Cephes' coefficients), so every GPU generation of a kernel family
/// computes the same bits; the hardware's approximations may differ between generations. IEEE
/// division and square root are plain `/` and std::sqrt.
namespace deepinfer::cuda {

/// a·b + c, rounded once.
DEEPINFER_HD float fma_rn(float a, float b, float c) {
#ifdef __CUDA_ARCH__
  return __fmaf_rn(a, b, c);
#else
  return std::fma(a, b, c);
#endif
}

/// The value with these bits.
DEEPINFER_HD float from_bits(uint32_t bits) {
  return std::bit_cast<float>(bits);
}
DEEPINFER_HD uint32_t to_bits(float value) {
  return std::bit_cast<uint32_t>(value);
}

/// e^x; 0 below -104, ∞ above 88.72, NaN for NaN.
DEEPINFER_HD float exp_f32(float x) {
  if (!(x >= -104.0F)) return x < 0 ? 0.0F : x;  // NaN passes through
  if (x > 88.7228394F) return std::numeric_limits<float>::infinity();
  const float n = std::rint(x * 1.44269504F);
  // x - n·ln 2 in two steps: the first constant has few bits, so its product is exact.
  float r = fma_rn(n, -0.693359375F, x);
  r = fma_rn(n, 2.12194440e-4F, r);
  float p = 1.9875691500e-4F;
  p = fma_rn(p, r, 1.3981999507e-3F);
  p = fma_rn(p, r, 8.3334519073e-3F);
  p = fma_rn(p, r, 4.1665795894e-2F);
  p = fma_rn(p, r, 1.6666665459e-1F);
  p = fma_rn(p, r, 5.0000001201e-1F);
  const float y = fma_rn(p, r * r, r) + 1.0F;
  // 2^n in two factors: n may be 128 (whose power is ∞) or below -126 (a subnormal).
  const auto whole = static_cast<int32_t>(n);
  const int32_t half = whole >> 1;
  return y * from_bits(static_cast<uint32_t>(half + 127) << 23) *
         from_bits(static_cast<uint32_t>(whole - half + 127) << 23);
}

/// Natural logarithm; -∞ at 0, NaN below.
DEEPINFER_HD float log_f32(float x) {
  if (!(x > 0)) return x == 0 ? -std::numeric_limits<float>::infinity() : from_bits(0x7FC00000);
  if (x == std::numeric_limits<float>::infinity()) return x;
  float exponent = 0;
  if (x < 0x1p-126F) {
    x *= 0x1p24F;
    exponent = -24;
  }
  const uint32_t bits = to_bits(x);
  exponent += static_cast<float>(static_cast<int32_t>(bits >> 23) - 126);
  float m = from_bits((bits & 0x007FFFFF) | 0x3F000000);  // [½, 1)
  if (m < 0.707106781F) {
    exponent -= 1;
    m += m;
  }
  m -= 1;
  const float z = m * m;
  float p = 7.0376836292e-2F;
  p = fma_rn(p, m, -1.1514610310e-1F);
  p = fma_rn(p, m, 1.1676998740e-1F);
  p = fma_rn(p, m, -1.2420140846e-1F);
  p = fma_rn(p, m, 1.4249322787e-1F);
  p = fma_rn(p, m, -1.6668057665e-1F);
  p = fma_rn(p, m, 2.0000714765e-1F);
  p = fma_rn(p, m, -2.4999993993e-1F);
  p = fma_rn(p, m, 3.3333331174e-1F);
  float y = p * m * z;
  y = fma_rn(exponent, -2.12194440e-4F, y);
  y = fma_rn(-0.5F, z, y);
  return fma_rn(exponent, 0.693359375F, m + y);
}

/// log(1 + x) for x > -1, accurate for small x too.
DEEPINFER_HD float log1p_f32(float x) {
  const float w = 1.0F + x;
  if (w == 1.0F || w == std::numeric_limits<float>::infinity()) return x;
  return log_f32(w) * (x / (w - 1.0F));  // corrects the rounding of 1 + x
}

DEEPINFER_HD float sigmoid_f32(float x) {
  return 1.0F / (1.0F + exp_f32(-x));
}

/// log(1 + e^x), x itself above 20 (spec/model.md §8).
DEEPINFER_HD float softplus_f32(float x) {
  return x > 20.0F ? x : log1p_f32(exp_f32(x));
}

}  // namespace deepinfer::cuda
