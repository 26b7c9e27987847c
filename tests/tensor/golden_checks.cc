#include "tests/tensor/golden_checks.h"

#include <functional>

#include "tensor/quantize.h"
#include "tests/support/compare.h"
#include "tests/support/tensors.h"

namespace deepinfer {
namespace {

using testing::bitwise_equal;
using testing::Golden;

/// `to_code` of NAME.x gives `codes`, and their values are NAME.value.
void check_format(const Golden& golden, const std::string& name, const std::string& codes,
                  const std::function<uint8_t(float)>& to_code,
                  const std::function<float(uint8_t)>& to_value) {
  std::vector<int64_t> got;
  std::vector<float> values;
  for (const float x : golden.floats(name + ".x")) {
    got.push_back(to_code(x));
    values.push_back(to_value(to_code(x)));
  }
  EXPECT_EQ(got, golden.ints(codes)) << name;
  EXPECT_TRUE(bitwise_equal(values, golden.floats(name + ".value"))) << name;
}

using Quantise = void (*)(std::span<const float>, uint8_t*, uint8_t*);
using Dequantise = void (*)(const uint8_t*, const uint8_t*, std::span<float>);

/// Quantises all of NAME.x at once (its rows are whole blocks), compares values with NAME.y and
/// returns the scale bytes.
std::vector<int64_t> check_round_trip(const Golden& golden, const std::string& name,
                                      Quantise quantise, Dequantise dequantise) {
  std::vector<float> x = golden.floats(name + ".x");
  std::vector<uint8_t> codes(x.size());
  std::vector<uint8_t> scales(x.size());
  quantise(x, codes.data(), scales.data());
  dequantise(codes.data(), scales.data(), x);
  EXPECT_TRUE(bitwise_equal(x, golden.floats(name + ".y"))) << name;
  return {scales.begin(), scales.end()};
}

/// e8m0 bytes as exponents, the first `count`.
std::vector<int64_t> exponents(const std::vector<int64_t>& bytes, size_t count) {
  std::vector<int64_t> result;
  for (size_t i = 0; i < count; ++i) result.push_back(bytes[i] - 127);
  return result;
}

}  // namespace

void check_number_formats(const Golden& golden) {
  check_format(golden, "e4m3", "e4m3.byte", float_to_e4m3, e4m3_to_float);
  check_format(golden, "e2m1", "e2m1.code", float_to_e2m1,
               [](uint8_t code) { return kE2M1Values[code]; });
  std::vector<int64_t> bits;
  for (const float x : golden.floats("bf16.x")) bits.push_back(to_bfloat16(x).bits);
  EXPECT_EQ(bits, golden.ints("bf16.bits"));
  std::vector<int64_t> scales;
  for (const float x : golden.floats("ue8m0.x")) scales.push_back(ceil_to_e8m0(x));
  EXPECT_EQ(exponents(scales, scales.size()), golden.ints("ue8m0.exp"));
}

void check_cache_quantisers(const Golden& golden) {
  const auto fp8 = check_round_trip(golden, "act_fp8", quantize_fp8, dequantize_fp8);
  const std::vector<int64_t> fp8_exponents = golden.ints("act_fp8.exp");
  EXPECT_EQ(exponents(fp8, fp8_exponents.size()), fp8_exponents);

  const auto fp4 = check_round_trip(golden, "act_fp4", quantize_fp4_index, dequantize_fp4_index);
  const std::vector<int64_t> fp4_exponents = golden.ints("act_fp4.exp");
  EXPECT_EQ(exponents(fp4, fp4_exponents.size()), fp4_exponents);

  auto kv = check_round_trip(golden, "act_fp4_e4m3", quantize_fp4_kv, dequantize_fp4_kv);
  const std::vector<int64_t> scale_bytes = golden.ints("act_fp4_e4m3.scale_byte");
  kv.resize(scale_bytes.size());
  EXPECT_EQ(kv, scale_bytes);
  std::vector<float> scales;
  for (const int64_t byte : kv) scales.push_back(e4m3_to_float(static_cast<uint8_t>(byte)));
  EXPECT_TRUE(bitwise_equal(scales, golden.floats("act_fp4_e4m3.scale")));
}

void check_weight_formats(const Golden& golden) {
  // Element by element from the definition, not through an operation's fast path.
  const auto check = [&](const std::string& name, bool fp4, int64_t scale_rows) {
    const TensorView codes = golden.view(name + ".weight");
    const TensorView scales = golden.view(name + ".scale");
    const Shape shape = golden.shape(name + ".dequant");
    std::vector<float> values;
    for (int64_t o = 0; o < shape[0]; ++o) {
      for (int64_t i = 0; i < shape[1]; ++i) {
        const float scale = e8m0_to_float(scales.row<const uint8_t>(o / scale_rows)[i / 32]);
        const uint8_t code = codes.row<const uint8_t>(o)[fp4 ? i / 2 : i];
        const float value =
            fp4 ? kE2M1Values[i % 2 == 0 ? code & 0xF : code >> 4] : e4m3_to_float(code);
        values.push_back(value * scale);
      }
    }
    EXPECT_TRUE(bitwise_equal(values, golden.floats(name + ".dequant"))) << name;
  };
  check("weight_fp8", false, 32);
  check("weight_fp8row", false, 1);
  check("weight_fp4", true, 1);
}

}  // namespace deepinfer
