#include "checkpoint/random_weights.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <string_view>

#include "base/error.h"
#include "base/hash.h"
#include "base/philox.h"

namespace deepinfer::checkpoint {
namespace {

using ByteTable = std::array<uint8_t, 256>;

/// The value below which a normal variable lies with probability p, by bisection of erf.
float normal_quantile(double p) {
  double low = -8;
  double high = 8;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (0.5 * (1 + std::erf(middle / std::sqrt(2.0))) < p ? low : high) = middle;
  }
  return static_cast<float>((low + high) / 2);
}

const std::array<float, 256>& normal_table() {
  static const std::array<float, 256> table = [] {
    std::array<float, 256> values{};
    for (size_t i = 0; i < 256; ++i)
      values[i] = normal_quantile((static_cast<double>(i) + 0.5) / 256);
    return values;
  }();
  return table;
}

/// Codes of normal values with standard deviation 1.
const ByteTable& e4m3_table() {
  static const ByteTable table = [] {
    ByteTable codes{};
    for (size_t i = 0; i < 256; ++i) codes[i] = float_to_e4m3(normal_table()[i]);
    return codes;
  }();
  return table;
}

/// FP4 codes are spread over their range by drawing values with this standard deviation.
constexpr float kFp4Deviation = 3;

const ByteTable& fp4_pair_table() {
  static const ByteTable table = [] {
    std::array<uint8_t, 16> codes{};
    for (size_t i = 0; i < 16; ++i) {
      codes[i] =
          float_to_e2m1(kFp4Deviation * normal_quantile((static_cast<double>(i) + 0.5) / 16));
    }
    ByteTable pairs{};
    for (size_t i = 0; i < 256; ++i)
      pairs[i] = static_cast<uint8_t>(codes[i & 15] | codes[i >> 4] << 4);
    return pairs;
  }();
  return table;
}

/// Scales of three neighbouring powers of two, so that kernels meet blocks of different scale.
ByteTable scale_table(int base) {
  ByteTable scales{};
  for (size_t i = 0; i < 256; ++i)
    scales[i] = static_cast<uint8_t>(base - 1 + static_cast<int>(i % 3));
  return scales;
}

bool ends_with_any(std::string_view name, std::initializer_list<std::string_view> endings) {
  return std::ranges::any_of(endings,
                             [&](std::string_view ending) { return name.ends_with(ending); });
}

/// 1/√fan_in of a product, 1 for look-up tables.
float product_deviation(const ExpectedTensor& tensor) {
  if (ends_with_any(tensor.name, {"embed.weight", "embed.scale"})) return 1;
  int64_t fan_in = tensor.shape[tensor.shape.rank() - 1];
  if (tensor.dtype == DType::kE2M1x2) fan_in *= 2;
  if (tensor.dtype == DType::kE8M0) fan_in *= 32;
  return 1 / std::sqrt(static_cast<float>(fan_in));
}

}  // namespace

RandomWeights::RandomWeights(uint64_t seed, const ExpectedTensor& tensor)
    : key_(hash64(std::as_bytes(std::span(tensor.name)), seed)), dtype_(tensor.dtype) {
  const bool is_vector = tensor.shape.rank() == 1;
  if (ends_with_any(tensor.name,
                    {"norm.weight", "norm1.weight", "norm2.weight", "q_weight", "k_weight"})) {
    mean_ = 1;
    deviation_ = 0.1F;
  } else if (ends_with_any(tensor.name, {"_scale"}) && is_vector) {  // hc_attn_scale, hc_ffn_scale
    mean_ = 1;
    deviation_ = 0.1F;
  } else if (is_vector && dtype_ == DType::kF32) {  // biases, hc bases, attention sinks
    deviation_ = 0.1F;
  } else if (is_vector) {
    deviation_ = 0.02F;
  } else {
    deviation_ = product_deviation(tensor);
  }
  if (dtype_ == DType::kE8M0) {
    // A scale row per weight row means FP4, unless the weights are Engram rows.
    const bool fp4 = tensor.name.find(".experts.") != std::string::npos;
    const float scale = deviation_ / (fp4 ? kFp4Deviation : 1.0F);
    base_scale_ = 127 + static_cast<int>(std::lround(std::log2(scale)));
  }
}

void RandomWeights::fill(int64_t begin, std::span<std::byte> out) const {
  DEEPINFER_CHECK(begin % 8 == 0, "begin {}", begin);
  const std::array<float, 256>& normal = normal_table();
  const ByteTable scales = scale_table(base_scale_);
  const ByteTable& bytes = dtype_ == DType::kE8M0   ? scales
                           : dtype_ == DType::kE4M3 ? e4m3_table()
                                                    : fp4_pair_table();
  for (size_t done = 0; done < out.size(); done += 8) {
    constexpr uint64_t kGolden = 0x9E3779B97F4A7C15;
    const uint64_t index = static_cast<uint64_t>(begin) / 8 + done / 8;
    const uint64_t random = mix64(key_ + (index + 1) * kGolden);
    std::array<uint8_t, 8> word{};
    std::memcpy(word.data(), &random, 8);
    // The sum of two table values: 65,536 outcomes, close to normal.
    const auto value = [&](size_t i) {
      constexpr float kHalfRoot = 0.70710678F;
      return mean_ + deviation_ * kHalfRoot * (normal[word[i]] + normal[word[i + 1]]);
    };
    if (dtype_ == DType::kF32) {
      const std::array<float, 2> values = {value(0), value(2)};
      std::memcpy(word.data(), values.data(), 8);
    } else if (dtype_ == DType::kBF16) {
      std::array<uint16_t, 4> values{};
      for (size_t i = 0; i < 4; ++i) values[i] = to_bfloat16(value(2 * i)).bits;
      std::memcpy(word.data(), values.data(), 8);
    } else {
      for (uint8_t& byte : word) byte = bytes[byte];
    }
    std::memcpy(out.data() + done, word.data(), std::min<size_t>(8, out.size() - done));
  }
}

}  // namespace deepinfer::checkpoint
