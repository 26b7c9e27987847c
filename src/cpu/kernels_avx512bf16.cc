#define DEEPINFER_AVX512_LEVEL avx512bf16
#include "cpu/simd/avx512.h"

// After the vector type that its templates take.
#include "cpu/kernels/table.h"

namespace deepinfer::cpu {
namespace avx512bf16 {

/// Narrow operands: the 32 elements of a step in bf16, in their own order, so that vdpbf16ps adds a
/// lane's odd, then its even product. Only values that are exact in bf16 come here.
struct Narrow {
  using Vector = F32x16;
  static constexpr int64_t kStepBytes = kStep * 2;

  static void store(const Pair& pair, uint8_t* at) {
    const __m512i odd = _mm512_castps_si512(pair.odd.v);
    const __m512i even = _mm512_srli_epi32(_mm512_castps_si512(pair.even.v), 16);
    _mm512_storeu_si512(at, _mm512_or_si512(odd, even));
  }
  static __m512bh load(const uint8_t* at) {
    return reinterpret_cast<__m512bh>(_mm512_loadu_si512(at));
  }
  template <int kRows, int kOutputs>
  [[gnu::always_inline]] static void panel_step(const uint8_t* weights, int64_t output_bytes,
                                                const uint8_t* const* x, int64_t at,
                                                F32x16 (&sum)[kRows][kOutputs]) {
    __m512bh w[kOutputs];
    for (int o = 0; o < kOutputs; ++o) w[o] = load(weights + o * output_bytes);
    for (int r = 0; r < kRows; ++r) {
      const __m512bh input = load(x[r] + at);
      for (int o = 0; o < kOutputs; ++o) {
        sum[r][o].v = _mm512_dpbf16_ps(sum[r][o].v, w[o], input);
      }
    }
  }
};

}  // namespace avx512bf16

const Kernels& kernels_avx512bf16() {
  static constexpr Kernels kernels = [] {
    Kernels table = make_kernels<avx512bf16::F32x16>("avx512bf16");
    table.products.prepare_narrow = prepare_row<avx512bf16::Narrow>;
    table.products.many_narrow = dots_many<avx512bf16::Narrow>;
    return table;
  }();
  return kernels;
}

}  // namespace deepinfer::cpu
