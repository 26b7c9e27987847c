#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace deepinfer::cpu {

/// The angles of RoPE (spec/model.md §3): cos and sin of fl32(fl32(position) · inv_freq), nearly
/// always the nearest fp32; `sign` is -1 to rotate back. In double with explicit fma, so that every
/// instruction set gives the same bits.
template <typename V>
void rotation(int64_t position, const float* inv_freq, int64_t pairs, double sign, float* cosine,
              float* sine) {
  constexpr double kHalfPi = 0x1.921fb54442d18p+0;
  constexpr double kHalfPiRest = 0x1.1a62633145c07p-54;
  constexpr double kRound = 0x1.8p52;  // adding it rounds to a whole number
  const auto t = static_cast<float>(position);
  for (int64_t i = 0; i < pairs; ++i) {
    // The rounding of this product to fp32 is part of the model.
    const float angle = t * inv_freq[i];
    const double x = static_cast<double>(angle);
    const double shifted = x * (1 / kHalfPi) + kRound;
    const double n = shifted - kRound;
    const auto quadrant = std::bit_cast<uint64_t>(shifted);
    // x - n·π/2: the first fma is exact, since an fp32 x is a multiple of what n·π/2 cancels to.
    const double r = std::fma(-n, kHalfPiRest, std::fma(-n, kHalfPi, x));
    const double r2 = r * r;
    // fdlibm's kernels on [-π/4, π/4].
    double s = std::fma(r2, 1.58969099521155010221e-10, -2.50507602534068634195e-08);
    s = std::fma(r2, s, 2.75573137070700676789e-06);
    s = std::fma(r2, s, -1.98412698298579493134e-04);
    s = std::fma(r2, s, 8.33333333332248946124e-03);
    s = std::fma(r2, s, -1.66666666666666324348e-01);
    s = std::fma(r * r2, s, r);
    double c = std::fma(r2, -1.13596475577881948265e-11, 2.08757232129817482790e-09);
    c = std::fma(r2, c, -2.75573143513906633035e-07);
    c = std::fma(r2, c, 2.48015872894767294178e-05);
    c = std::fma(r2, c, -1.38888888888741095749e-03);
    c = std::fma(r2, c, 4.16666666666666019037e-02);
    c = std::fma(r2 * r2, c, std::fma(r2, -0.5, 1.0));
    // x = r + n·π/2 turns (cos, sin) by n quarters.
    const bool swaps = (quadrant & 1) != 0;
    const double cos_magnitude = swaps ? s : c;
    const double sin_magnitude = swaps ? c : s;
    cosine[i] = static_cast<float>(((quadrant + 1) & 2) != 0 ? -cos_magnitude : cos_magnitude);
    sine[i] = static_cast<float>(sign * ((quadrant & 2) != 0 ? -sin_magnitude : sin_magnitude));
  }
}

}  // namespace deepinfer::cpu
