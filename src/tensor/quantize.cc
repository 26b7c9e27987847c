#include "tensor/quantize.h"

#include <algorithm>
#include <cmath>

#include "tensor/formats.h"

namespace deepinfer {
namespace {

float max_magnitude(const float* x, int64_t n, float at_least) {
  float amax = at_least;
  for (int64_t i = 0; i < n; ++i) amax = std::max(amax, std::fabs(x[i]));
  return amax;
}

float clamp_magnitude(float x, float limit) {
  return std::clamp(x, -limit, limit);
}

/// Quantises blocks of `block` values to e2m1 pairs with the scale value that `scale_of(amax, block
/// index)` stores.
template <typename ScaleOf>
void quantize_fp4(std::span<const float> x, int64_t block, float smallest_amax, uint8_t* codes,
                  ScaleOf&& scale_of) {
  const auto n = static_cast<int64_t>(x.size());
  for (int64_t b = 0; b < n; b += block) {
    const float scale =
        scale_of(max_magnitude(&x[static_cast<size_t>(b)], block, smallest_amax), b / block);
    for (int64_t i = b; i < b + block; i += 2) {
      const auto code = [&](int64_t k) {
        return float_to_e2m1(clamp_magnitude(x[static_cast<size_t>(k)] / scale, kE2M1Max));
      };
      codes[i / 2] = static_cast<uint8_t>(code(i) | (code(i + 1) << 4));
    }
  }
}

template <typename ScaleAt>
void dequantize_fp4(const uint8_t* codes, int64_t block, std::span<float> x, ScaleAt&& scale_at) {
  for (size_t i = 0; i < x.size(); ++i) {
    const uint8_t code = (codes[i / 2] >> (i % 2 * 4)) & 0xF;
    x[i] = kE2M1Values[code] * scale_at(static_cast<int64_t>(i) / block);
  }
}

}  // namespace

void quantize_fp8(std::span<const float> x, uint8_t* codes, uint8_t* scales) {
  const auto n = static_cast<int64_t>(x.size());
  for (int64_t b = 0; b < n; b += kFp8Block) {
    const float amax = max_magnitude(&x[static_cast<size_t>(b)], kFp8Block, 1e-4F);
    const uint8_t exponent = ceil_to_e8m0(amax * (1.0F / 448.0F));
    scales[b / kFp8Block] = exponent;
    const float scale = e8m0_to_float(exponent);
    for (int64_t i = b; i < b + kFp8Block; ++i) {
      codes[i] = float_to_e4m3(clamp_magnitude(x[static_cast<size_t>(i)] / scale, kE4M3Max));
    }
  }
}

void dequantize_fp8(const uint8_t* codes, const uint8_t* scales, std::span<float> x) {
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = e4m3_to_float(codes[i]) * e8m0_to_float(scales[i / kFp8Block]);
  }
}

void round_trip_fp8(std::span<float> x) {
  uint8_t codes[kFp8Block];
  uint8_t scale = 0;
  for (size_t b = 0; b < x.size(); b += kFp8Block) {
    const std::span<float> block = x.subspan(b, kFp8Block);
    quantize_fp8(block, codes, &scale);
    dequantize_fp8(codes, &scale, block);
  }
}

void quantize_fp4_index(std::span<const float> x, uint8_t* codes, uint8_t* scales) {
  quantize_fp4(x, kFp8Block, 6 * 0x1p-126F, codes, [&](float amax, int64_t block) {
    scales[block] = ceil_to_e8m0(amax * (1.0F / 6.0F));
    return e8m0_to_float(scales[block]);
  });
}

void dequantize_fp4_index(const uint8_t* codes, const uint8_t* scales, std::span<float> x) {
  dequantize_fp4(codes, kFp8Block, x, [&](int64_t block) { return e8m0_to_float(scales[block]); });
}

void quantize_fp4_kv(std::span<const float> x, uint8_t* codes, uint8_t* scales) {
  quantize_fp4(x, kFp4KvBlock, 6 * 0x1p-9F, codes, [&](float amax, int64_t block) {
    scales[block] = float_to_e4m3(amax / 6.0F);
    return e4m3_to_float(scales[block]);
  });
}

void dequantize_fp4_kv(const uint8_t* codes, const uint8_t* scales, std::span<float> x) {
  dequantize_fp4(codes, kFp4KvBlock, x,
                 [&](int64_t block) { return e4m3_to_float(scales[block]); });
}

}  // namespace deepinfer
