#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "cuda/arena.h"
#include "cuda/context.h"
#include "cuda/cuda.h"
#include "cuda/error.h"
#include "cuda/gemm.h"
#include "cuda/stream.h"
#include "tensor/quantize.h"
#include "tests/support/operands.h"

namespace deepinfer::cuda {
namespace {

constexpr uint64_t kSeed = 20261201;
constexpr int64_t kWorkspaceBytes = int64_t{512} << 20;

/// Products on the device without a backend around them.
class Products : public ::testing::Test {
 protected:
  Products() {
    DEEPINFER_CUDA(cudaMemset(counters_, 0, kNumCounters * sizeof(int32_t)));
    cudaDeviceProp properties{};
    DEEPINFER_CUDA(cudaGetDeviceProperties(&properties, 0));
    context_ = {.stream = stream_.get(),
                .workspace = &workspace_,
                .counters = counters_,
                .num_multiprocessors = properties.multiProcessorCount};
  }

  TensorView to_device(const TensorView& host) {
    if (host.empty()) return {};
    const TensorView device(arena_.take(host.num_bytes()), host.dtype(), host.shape());
    DEEPINFER_CUDA(cudaMemcpy(device.data(), host.data(), static_cast<size_t>(host.num_bytes()),
                              cudaMemcpyHostToDevice));
    return device;
  }
  QuantView to_device(const QuantView& host) {
    return {to_device(host.weight), to_device(host.scale), host.scale_rows};
  }

  /// The product of the first `rows` rows; the result's memory is poisoned before.
  std::vector<float> run(const QuantView& weight, const TensorView& x, int64_t rows,
                         InputRounding rounding, DType result) {
    const TensorView y(arena_.take(rows * weight.rows() * size_of(result)), result,
                       {rows, weight.rows()});
    DEEPINFER_CUDA(cudaMemset(y.data(), 0xFF, static_cast<size_t>(y.num_bytes())));
    linear(weight, x.slice(0, rows), rounding, y, context_);
    stream_.synchronize();
    const Tensor host(result, y.shape());
    DEEPINFER_CUDA(cudaMemcpy(host.view().data(), y.data(), static_cast<size_t>(y.num_bytes()),
                              cudaMemcpyDeviceToHost));
    return testing::to_floats(host);
  }

  void expect_invariant(const testing::Weight& weight, InputRounding rounding, DType result) {
    const int64_t columns = weight.view().cols();
    const int64_t outputs = weight.view().rows();
    constexpr int64_t kRows = 1100;
    testing::Random random(kSeed);
    const Tensor x = random.tensor(DType::kBF16, {kRows, columns});
    const TensorView device_x = to_device(x.view());
    const QuantView device_weight = to_device(weight.view());
    const std::vector<float> all = run(device_weight, device_x, kRows, rounding, result);
    for (const int64_t rows : {1, 2, 8, 9, 16, 17, 31, 33, 64, 65, 128, 200, 256, 513}) {
      const std::vector<float> some = run(device_weight, device_x, rows, rounding, result);
      int64_t differ = 0;
      for (size_t i = 0; i < some.size(); ++i) {
        differ += std::memcmp(&some[i], &all[i], sizeof(float)) != 0;
      }
      EXPECT_EQ(differ, 0) << outputs << " x " << columns << ", " << rows << " rows, seed "
                           << kSeed;
    }
    expect_right(weight.view(), x.view(), all, rounding);
  }

  /// A few outputs of a few rows against double sums.
  static void expect_right(const QuantView& weight, const TensorView& x,
                           const std::vector<float>& got, InputRounding rounding) {
    const int64_t columns = weight.cols();
    const int64_t outputs = weight.rows();
    std::vector<float> row(static_cast<size_t>(columns));
    for (const int64_t b : {0, 7, 63, 511, 1099}) {
      std::vector<float> input = testing::to_floats(x.slice(b, 1));
      if (rounding == InputRounding::kFp8) round_trip_fp8(input);
      for (int64_t o = 0; o < outputs; o += std::max<int64_t>(outputs / 37, 1)) {
        dequantize(weight, o, row);
        double sum = 0;
        double size = 0;
        for (size_t k = 0; k < row.size(); ++k) {
          sum += static_cast<double>(row[k]) * static_cast<double>(input[k]);
          size += std::abs(static_cast<double>(row[k]) * static_cast<double>(input[k]));
        }
        const double error =
            std::abs(static_cast<double>(got[static_cast<size_t>(b * outputs + o)]) - sum);
        EXPECT_LE(error, std::abs(sum) / 256 + size * 1e-5) << "row " << b << " output " << o;
      }
    }
  }

  static void dequantize(const QuantView& weight, int64_t o, std::vector<float>& row) {
    for (size_t k = 0; k < row.size(); ++k) {
      if (weight.weight.dtype() == DType::kBF16) {
        row[k] = to_float(weight.weight.row<const BFloat16>(o)[k]);
        continue;
      }
      const float scale =
          e8m0_to_float(weight.scale.row<const uint8_t>(o / weight.scale_rows)[k / 32]);
      const auto* codes = weight.weight.row<const uint8_t>(o);
      row[k] = weight.weight.dtype() == DType::kE4M3
                   ? e4m3_to_float(codes[k]) * scale
                   : kE2M1Values[static_cast<size_t>(codes[k / 2] >> (k % 2 * 4) & 0xF)] * scale;
    }
  }

  Stream stream_;
  Arena arena_;
  Workspace workspace_{arena_.take(kWorkspaceBytes), kWorkspaceBytes};
  int32_t* counters_ =
      reinterpret_cast<int32_t*>(arena_.take(kNumCounters * static_cast<int64_t>(sizeof(int32_t))));
  Context context_;
};

TEST_F(Products, Fp8BitsDoNotDependOnTheOtherRows) {
  testing::Random random(kSeed);
  for (const auto& [outputs, columns] : std::vector<std::pair<int64_t, int64_t>>{
           {1280, 5120}, {4096, 1280}, {2304, 5120}, {5120, 2304}, {100, 96}, {40, 1088}}) {
    expect_invariant(testing::random_fp8(random, outputs, columns), InputRounding::kFp8,
                     DType::kBF16);
  }
}

TEST_F(Products, Fp4BitsDoNotDependOnTheOtherRows) {
  testing::Random random(kSeed);
  for (const auto& [outputs, columns] :
       std::vector<std::pair<int64_t, int64_t>>{{2304, 5120}, {5120, 2304}, {104, 96}}) {
    expect_invariant(testing::random_fp4(random, outputs, columns), InputRounding::kFp8,
                     DType::kBF16);
  }
}

TEST_F(Products, Bf16BitsDoNotDependOnTheOtherRows) {
  testing::Random random(kSeed);
  for (const auto& [outputs, columns] : std::vector<std::pair<int64_t, int64_t>>{
           {384, 5120}, {512, 5120}, {12928, 5120}, {32, 80}}) {
    const testing::Weight weight{.values = random.tensor(DType::kBF16, {outputs, columns}, 0.02F),
                                 .scales = {},
                                 .scale_rows = 1};
    expect_invariant(weight, InputRounding::kNone, DType::kF32);
  }
}

}  // namespace
}  // namespace deepinfer::cuda
