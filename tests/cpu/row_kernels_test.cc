// The kernels on rows at every level of this machine's processor: their accuracy against double,
// their quantisers and angles against the number formats' own, and equal bits on all levels.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <numeric>
#include <random>
#include <vector>

#include "cpu/denormals.h"
#include "cpu/dispatch.h"
#include "ops/noise.h"
#include "tensor/quantize.h"

namespace deepinfer::cpu {
namespace {

constexpr uint64_t kSeed = 20261201;

std::vector<uint32_t> bits_of(std::span<const float> values) {
  std::vector<uint32_t> bits;
  for (const float v : values) bits.push_back(std::bit_cast<uint32_t>(v));
  return bits;
}

/// Calls body(kernels) for every level, with subnormals flushed as in operations.
void for_each_level(const std::function<void(const RowKernels&)>& body) {
  for (const Kernels* kernels : available_kernels()) {
    SCOPED_TRACE(::testing::Message() << kernels->level << ", seed " << kSeed);
    const FlushDenormals flush;
    body(kernels->rows);
  }
}

/// `count` numbers, their logarithms evenly spread over [low, high].
std::vector<float> spread(double low, double high, int count, bool negative = false) {
  std::mt19937_64 random(kSeed);
  std::uniform_real_distribution<double> exponent(std::log(low), std::log(high));
  std::vector<float> values;
  for (int i = 0; i < count; ++i) {
    const auto v = static_cast<float>(std::exp(exponent(random)));
    values.push_back(negative && random() % 2 == 0 ? -v : v);
  }
  return values;
}

struct Case {
  const char* name;
  Function function;
  double (*exact)(double);
  std::vector<float> inputs;
};

std::vector<Case> cases() {
  constexpr int kCount = 100'003;
  return {
      {"exp", Function::kExp, std::exp, spread(1e-10, 87.3, kCount, true)},
      {"log", Function::kLog, std::log, spread(0x1p-126, 3e38, kCount)},
      {"log near 1", Function::kLog, std::log, spread(0.5, 2, kCount)},
      {"log1p", Function::kLog1p, std::log1p, spread(1e-37, 3e38, kCount)},
      {"log1p of both signs", Function::kLog1p, std::log1p, spread(1e-20, 0.9999, kCount, true)},
      {"sigmoid", Function::kSigmoid, [](double x) { return 1 / (1 + std::exp(-x)); },
       spread(1e-10, 87, kCount, true)},
      {"softplus", Function::kSoftplus, [](double x) { return std::log1p(std::exp(x)); },
       spread(1e-10, 87, kCount, true)},
  };
}

TEST(RowKernels, FunctionsAreAccurateAndEqualOnAllLevels) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    std::vector<uint32_t> first;
    for_each_level([&](const RowKernels& kernels) {
      std::vector<float> got(c.inputs.size());
      kernels.evaluate(c.function, c.inputs.data(), std::ssize(c.inputs), got.data());
      double worst = 0;
      for (size_t i = 0; i < got.size(); ++i) {
        const double want = c.exact(static_cast<double>(c.inputs[i]));
        if (std::fabs(want) < 0x1p-126) continue;  // subnormal: flushed
        worst = std::max(worst, std::fabs((static_cast<double>(got[i]) - want) / want));
      }
      EXPECT_LT(worst, 0x1p-21);
      if (first.empty()) first = bits_of(got);
      EXPECT_TRUE(bits_of(got) == first);
    });
  }
}

TEST(RowKernels, FunctionsKnowTheirLimits) {
  constexpr float kInf = INFINITY;
  for_each_level([&](const RowKernels& kernels) {
    const auto at = [&](Function function, float x) {
      float y = 0;
      kernels.evaluate(function, &x, 1, &y);
      return y;
    };
    EXPECT_EQ(at(Function::kExp, 0), 1);
    EXPECT_EQ(at(Function::kExp, -kInf), 0);
    EXPECT_EQ(at(Function::kExp, -88), 0);  // e^-88 is subnormal
    EXPECT_EQ(at(Function::kExp, 89), kInf);
    EXPECT_TRUE(std::isfinite(at(Function::kExp, 88.7F)));
    EXPECT_TRUE(std::isnan(at(Function::kExp, NAN)));
    EXPECT_EQ(at(Function::kLog, 1), 0);
    EXPECT_EQ(at(Function::kLog, kInf), kInf);
    EXPECT_TRUE(std::isnan(at(Function::kLog, NAN)));
    EXPECT_EQ(at(Function::kSigmoid, kInf), 1);
    EXPECT_EQ(at(Function::kSigmoid, -kInf), 0);
    EXPECT_EQ(at(Function::kSoftplus, 25), 25);
    EXPECT_EQ(at(Function::kSoftplus, -kInf), 0);
    EXPECT_TRUE(std::isnan(at(Function::kSoftplus, NAN)));
  });
}

/// Rows of all sizes of values: ordinary, tiny, huge and zeros of both signs.
std::vector<BFloat16> mixed_row(std::mt19937_64& random, int64_t n) {
  std::normal_distribution<float> normal;
  const auto scale =
      static_cast<float>(std::exp(std::uniform_real_distribution<double>(-40, 40)(random)));
  std::vector<BFloat16> row;
  for (int64_t i = 0; i < n; ++i) {
    float v = normal(random) * scale;
    if (random() % 16 == 0) v *= 1e-3F;
    if (random() % 32 == 0) v = random() % 2 == 0 ? 0.0F : -0.0F;
    row.push_back(to_bfloat16(v));
  }
  return row;
}

TEST(RowKernels, QuantisersEqualTheFormats) {
  for_each_level([](const RowKernels& kernels) {
    std::mt19937_64 random(kSeed);
    for (int i = 0; i < 2000; ++i) {
      const int64_t n = 32 * static_cast<int64_t>(1 + random() % 4);
      const std::vector<BFloat16> row = mixed_row(random, n);
      std::vector<float> values;
      for (const BFloat16 v : row) values.push_back(to_float(v));
      const auto size = static_cast<size_t>(n);
      const auto expect_equal = [&](auto reference, auto kernel, int64_t length) {
        std::vector<uint8_t> codes(size);
        std::vector<uint8_t> scales(size / 16);
        std::vector<uint8_t> got_codes(size);
        std::vector<uint8_t> got_scales(size / 16);
        reference(std::span<const float>(values).first(static_cast<size_t>(length)), codes.data(),
                  scales.data());
        kernel(row.data(), length, got_codes.data(), got_scales.data());
        EXPECT_EQ(got_codes, codes);
        EXPECT_EQ(got_scales, scales);
      };
      expect_equal(quantize_fp8, kernels.quantize_fp8, n);
      expect_equal(quantize_fp4_index, kernels.quantize_fp4_index, n);
      expect_equal(quantize_fp4_kv, kernels.quantize_fp4_kv, n);
      expect_equal(quantize_fp4_kv, kernels.quantize_fp4_kv, n - 16);  // a last block of its own
      if (::testing::Test::HasFailure()) return;
    }
  });
}

TEST(RowKernels, AnglesAreThoseOfTheModel) {
  std::vector<uint32_t> first;
  for_each_level([&](const RowKernels& kernels) {
    std::mt19937_64 random(kSeed);
    std::vector<float> all;
    for (int i = 0; i < 3000; ++i) {
      const std::vector<float> inv_freq = spread(1e-6, 1, 19);
      const auto position = static_cast<int64_t>(random() % (1U << (1 + random() % 24)));
      float cosine[32];
      float sine[32];
      kernels.rotation(position, inv_freq.data(), 19, i % 2 == 0 ? 1 : -1, cosine, sine);
      for (size_t k = 0; k < inv_freq.size(); ++k) {
        const float angle = static_cast<float>(position) * inv_freq[k];
        const double signed_angle = static_cast<double>(i % 2 == 0 ? angle : -angle);
        EXPECT_NEAR(cosine[k], std::cos(signed_angle), 1e-7);
        EXPECT_NEAR(sine[k], std::sin(signed_angle), 1e-7);
      }
      all.insert(all.end(), cosine, cosine + 19);
      all.insert(all.end(), sine, sine + 19);
    }
    if (first.empty()) first = bits_of(all);
    EXPECT_TRUE(bits_of(all) == first);
  });
}

TEST(RowKernels, NormsOfEveryLengthAreEqualOnAllLevels) {
  std::vector<uint16_t> first;
  for_each_level([&](const RowKernels& kernels) {
    std::mt19937_64 random(kSeed);
    std::vector<uint16_t> all;
    for (const int64_t n : {1, 7, 16, 31, 64, 65, 96, 127, 128, 129, 1000}) {
      std::normal_distribution<float> normal;
      std::vector<BFloat16> x;
      std::vector<BFloat16> w;
      double sum = 0;
      for (int64_t i = 0; i < n; ++i) {
        x.push_back(to_bfloat16(normal(random)));
        w.push_back(to_bfloat16(normal(random)));
        sum += static_cast<double>(to_float(x.back()) * to_float(x.back()));
      }
      std::vector<BFloat16> out(x.size());
      kernels.rms_norm(x.data(), w.data(), n, 1e-20F, out.data());
      const double factor = 1 / std::sqrt(sum / static_cast<double>(n) + 1e-20);
      for (size_t i = 0; i < x.size(); ++i) {
        const double want = static_cast<double>(to_float(x[i]) * to_float(w[i])) * factor;
        EXPECT_NEAR(to_float(out[i]), want, std::fabs(want) * 0x1p-8);
        all.push_back(out[i].bits);
      }
    }
    if (first.empty()) first = all;
    EXPECT_EQ(all, first);
  });
}

TEST(RowKernels, DrawingArithmeticAgreesWithTheLibrary) {
  std::vector<double> first;
  for_each_level([&](const RowKernels& kernels) {
    const KeepDenormals keep;
    std::mt19937_64 random(kSeed);
    std::vector<double> all;
    for (int i = 0; i < 20'000; ++i) {
      const double x = -std::exp(std::uniform_real_distribution<double>(-30, 6.5)(random));
      EXPECT_NEAR(kernels.exp_double(x) / std::exp(x), 1, 1e-14) << x;
      const auto word = static_cast<uint32_t>(random());
      EXPECT_NEAR(kernels.gumbel_noise(word), ops::gumbel_noise(word), 1e-13) << word;
      all.push_back(kernels.exp_double(x));
      all.push_back(kernels.gumbel_noise(word));
    }
    for (const uint32_t word : {0U, 1U, 0x7FFFFFFFU, 0xFFFFFFFFU}) {
      EXPECT_NEAR(kernels.gumbel_noise(word), ops::gumbel_noise(word), 1e-12) << word;
    }
    const std::vector<float> logits = spread(1e-3, 50, 4099, true);
    const float largest = *std::ranges::max_element(logits);
    EXPECT_EQ(kernels.largest(logits.data(), 4099), largest);
    double sum = 0;
    for (const float v : logits) sum += std::exp(static_cast<double>(v - largest));
    const double got = kernels.log_sum_exp(logits.data(), 4099, largest);
    EXPECT_NEAR(got, std::log(sum), 1e-6);
    all.push_back(got);
    if (first.empty()) first = all;
    EXPECT_TRUE(all == first);
  });
}

}  // namespace
}  // namespace deepinfer::cpu
