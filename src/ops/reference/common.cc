#include "ops/reference/common.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "tensor/formats.h"
#include "tensor/quantize.h"

namespace deepinfer::ops::reference {
namespace {

constexpr int64_t kLanes = 16;
constexpr int64_t kScaleColumns = 32;  // columns per weight scale
/// Multiply-adds worth handing to another thread.
constexpr int64_t kGrainProducts = 32768;

int64_t row_size(const TensorView& tensor) {
  return tensor.dim(0) == 0 ? 0 : tensor.shape().num_elements() / tensor.dim(0);
}

/// Every e4m3 code's value: the number formats' functions are too slow for whole matrices.
const std::array<float, 256>& e4m3_table() {
  static const std::array<float, 256> table = [] {
    std::array<float, 256> values{};
    for (size_t i = 0; i < values.size(); ++i) values[i] = e4m3_to_float(static_cast<uint8_t>(i));
    return values;
  }();
  return table;
}

void dequantize_e4m3(const uint8_t* codes, const uint8_t* scales, std::span<float> out) {
  const std::array<float, 256>& table = e4m3_table();
  for (size_t begin = 0; begin < out.size(); begin += kScaleColumns) {
    const float scale = e8m0_to_float(scales[begin / kScaleColumns]);
    for (size_t i = begin; i < begin + kScaleColumns; ++i) out[i] = table[codes[i]] * scale;
  }
}

void dequantize_e2m1(const uint8_t* codes, const uint8_t* scales, std::span<float> out) {
  for (size_t begin = 0; begin < out.size(); begin += kScaleColumns) {
    const float scale = e8m0_to_float(scales[begin / kScaleColumns]);
    std::array<float, 16> values{};
    for (size_t code = 0; code < values.size(); ++code) values[code] = kE2M1Values[code] * scale;
    for (size_t i = begin; i < begin + kScaleColumns; i += 2) {
      const uint8_t pair = codes[i / 2];
      out[i] = values[pair & 0xF];
      out[i + 1] = values[pair >> 4];
    }
  }
}

}  // namespace

float dot(const float* a, const float* b, int64_t n) {
  std::array<float, kLanes> lanes{};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t l = 0; l < kLanes; ++l) {
      lanes[static_cast<size_t>(l)] += a[i + l] * b[i + l];
    }
  }
  for (; i < n; ++i) lanes[static_cast<size_t>(i % kLanes)] += a[i] * b[i];
  for (size_t width = kLanes / 2; width > 0; width /= 2) {
    for (size_t l = 0; l < width; ++l) lanes[l] += lanes[l + width];
  }
  return lanes[0];
}

void load_row(const TensorView& tensor, int64_t i, std::span<float> out) {
  DEEPINFER_DCHECK(row_size(tensor) == static_cast<int64_t>(out.size()), "row of {}",
                   tensor.shape().to_string());
  if (tensor.dtype() == DType::kBF16) {
    const auto* row = tensor.row<const BFloat16>(i);
    for (size_t c = 0; c < out.size(); ++c) out[c] = to_float(row[c]);
  } else {
    std::copy_n(tensor.row<const float>(i), out.size(), out.begin());
  }
}

std::vector<float> load_row(const TensorView& tensor, int64_t i) {
  std::vector<float> row(static_cast<size_t>(row_size(tensor)));
  load_row(tensor, i, row);
  return row;
}

std::vector<float> load_rows(const TensorView& tensor) {
  const auto size = static_cast<size_t>(row_size(tensor));
  std::vector<float> rows(static_cast<size_t>(tensor.dim(0)) * size);
  for (int64_t i = 0; i < tensor.dim(0); ++i) load_row(tensor, i, row_of(rows, i, size));
  return rows;
}

void store_row(std::span<const float> values, const TensorView& tensor, int64_t i) {
  DEEPINFER_DCHECK(row_size(tensor) == static_cast<int64_t>(values.size()), "row of {}",
                   tensor.shape().to_string());
  if (tensor.dtype() == DType::kBF16) {
    auto* row = tensor.row<BFloat16>(i);
    for (size_t c = 0; c < values.size(); ++c) row[c] = to_bfloat16(values[c]);
  } else {
    std::ranges::copy(values, tensor.row<float>(i));
  }
}

void store_rows(std::span<const float> values, const TensorView& tensor) {
  const auto size = static_cast<size_t>(row_size(tensor));
  for (int64_t i = 0; i < tensor.dim(0); ++i) {
    store_row(values.subspan(static_cast<size_t>(i) * size, size), tensor, i);
  }
}

void dequantize_row(const QuantView& weight, int64_t o, std::span<float> out) {
  const DType dtype = weight.weight.dtype();
  if (dtype == DType::kBF16 || dtype == DType::kF32) return load_row(weight.weight, o, out);
  const auto* codes = weight.weight.row<const uint8_t>(o);
  const auto* scales = weight.scale.row<const uint8_t>(o / weight.scale_rows);
  if (dtype == DType::kE4M3) {
    dequantize_e4m3(codes, scales, out);
  } else {
    DEEPINFER_CHECK(dtype == DType::kE2M1x2, "weight of {}", to_string(dtype));
    dequantize_e2m1(codes, scales, out);
  }
}

void linear(const Context& context, const QuantView& weight, std::span<const float> x,
            int64_t num_rows, std::span<float> y, InputRounding input, ResultRounding result) {
  const int64_t in = weight.cols();
  const int64_t out = weight.rows();
  DEEPINFER_CHECK(static_cast<int64_t>(x.size()) == num_rows * in &&
                      static_cast<int64_t>(y.size()) == num_rows * out,
                  "product of {} rows: {} inputs, {} outputs, weight [{}, {}]", num_rows, x.size(),
                  y.size(), out, in);
  std::vector<float> rounded;
  if (input == InputRounding::kFp8 && context.numerics == Numerics::kEngine) {
    rounded.assign(x.begin(), x.end());
    context.pool->parallel_for(num_rows, 8, [&](int64_t begin, int64_t end) {
      round_trip_fp8(std::span(rounded).subspan(static_cast<size_t>(begin * in),
                                                static_cast<size_t>((end - begin) * in)));
    });
    x = rounded;
  }
  // A weight row is dequantised once and met by all batch rows.
  const int64_t grain = kGrainProducts / std::max(in * num_rows, int64_t{1});
  context.pool->parallel_for(out, grain, [&](int64_t begin, int64_t end) {
    std::vector<float> row(static_cast<size_t>(in));
    for (int64_t o = begin; o < end; ++o) {
      dequantize_row(weight, o, row);
      for (int64_t b = 0; b < num_rows; ++b) {
        const float sum = dot(row.data(), x.data() + b * in, in);
        y[static_cast<size_t>(b * out + o)] =
            result == ResultRounding::kAct ? context.act(sum) : sum;
      }
    }
  });
}

std::vector<float> collapse(const Context& context, const TensorView& streams,
                            const float* coefficients) {
  std::vector<float> sum(static_cast<size_t>(streams.dim(1)));
  for (int64_t j = 0; j < streams.dim(0); ++j) {
    const std::vector<float> stream = load_row(streams, j);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += coefficients[j] * stream[i];
  }
  for (float& v : sum) v = context.act(v);
  return sum;
}

void rms_norm(const Context& context, std::span<float> x, const TensorView& weight, float eps) {
  const auto n = static_cast<int64_t>(x.size());
  const float mean = dot(x.data(), x.data(), n) / static_cast<float>(n);
  const float factor = 1.0F / std::sqrt(mean + eps);
  const std::vector<float> w = load_row(weight.reshape({1, n}), 0);
  for (size_t i = 0; i < x.size(); ++i) x[i] = context.act(w[i] * (x[i] * factor));
}

void rotate(const Context& context, std::span<float> x, const Rope& rope, int64_t position,
            bool inverse) {
  const auto pairs = static_cast<size_t>(rope.inv_freq.dim(0));
  const auto* inv_freq = rope.inv_freq.as<const float>();
  float* channels = x.data() + x.size() - 2 * pairs;
  for (size_t i = 0; i < pairs; ++i) {
    // The rounding of this product to fp32 is part of the model; cos and sin are those of the
    // rounded angle.
    const float angle = static_cast<float>(position) * inv_freq[i];
    const auto cosine = static_cast<float>(std::cos(static_cast<double>(angle)));
    const auto sine = static_cast<float>(std::sin(static_cast<double>(inverse ? -angle : angle)));
    const float a = channels[2 * i];
    const float b = channels[2 * i + 1];
    channels[2 * i] = context.act(a * cosine - b * sine);
    channels[2 * i + 1] = context.act(a * sine + b * cosine);
  }
}

float sigmoid(float x) {
  return 1.0F / (1.0F + std::exp(-x));
}

}  // namespace deepinfer::ops::reference
