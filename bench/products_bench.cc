#include <fmt/core.h>

#include <cstdlib>
#include <random>

#include "bench/limits.h"
#include "cpu/dispatch.h"
#include "cpu/linear.h"
#include "cpu/machine_limits.h"

// Products of the cpu backend beside what bounds them on this machine, measured in the same run,
// interleaved: reading memory for one row, oneDNN's bf16 product of the same shape for many rows.
namespace deepinfer::bench {
namespace {

using cpu::Context;
using cpu::InputRounding;
using cpu::Product;

constexpr int kRepeats = 9;

QuantView random_weight(std::vector<Tensor>& storage, DType dtype, int64_t out, int64_t in) {
  std::mt19937_64 random(1);
  const bool fp4 = dtype == DType::kE2M1x2;
  storage.emplace_back(dtype, Shape{out, fp4 ? in / 2 : in});
  Tensor& values = storage.back();
  auto* words = static_cast<uint64_t*>(values.view().data());
  for (int64_t i = 0; i < values.view().num_bytes() / 8; ++i) {
    words[i] = random() & 0xBFBFBFBFBFBFBFBF;  // no e4m3 NaN, no bf16 infinity
  }
  const TensorView view = values.view();
  if (dtype == DType::kBF16) return {view, {}, 1};
  const int64_t scale_rows = fp4 ? 1 : 32;
  storage.emplace_back(DType::kE8M0, Shape{(out + scale_rows - 1) / scale_rows, in / 32});
  for (int64_t i = 0; i < storage.back().view().num_bytes(); ++i) {
    storage.back().as<uint8_t>()[i] = static_cast<uint8_t>(118 + random() % 4);
  }
  return {view, storage.back().view(), scale_rows};
}

void one_row(const Context& context, DType dtype, const char* name, int64_t k) {
  std::vector<Tensor> storage;
  const int64_t row_bytes = dtype == DType::kBF16 ? 2 * k : dtype == DType::kE4M3 ? k : k / 2;
  const int64_t out = cpu::limit_buffer_bytes() / row_bytes / 32 * 32;
  const QuantView weight = random_weight(storage, dtype, out, k);
  const Tensor x(DType::kBF16, {1, k});
  for (int64_t i = 0; i < k; ++i) x.as<BFloat16>()[i] = to_bfloat16(static_cast<float>(i % 7) - 3);
  const Tensor y(DType::kBF16, {1, out});
  const auto bytes = static_cast<double>(weight.weight.num_bytes() +
                                         (weight.scale.empty() ? 0 : weight.scale.num_bytes()));
  Samples product;
  Samples read;
  for (int i = 0; i < kRepeats; ++i) {
    read.add(cpu::seconds_to_read(context.pool, weight.weight.data(), weight.weight.num_bytes()));
    product.add(seconds([&] {
      context.workspace.shared().reset();
      linear(context,
             {.weight = weight,
              .x = x,
              .y = y,
              .rounding = dtype == DType::kBF16 ? InputRounding::kNone : InputRounding::kFp8});
    }));
  }
  const double limit = static_cast<double>(weight.weight.num_bytes() >> 20 << 20) / read.median();
  const double rate = bytes / product.median();
  fmt::print("one row   {:5} [{}, {}]: {:6.2f} GB/s, {:3.0f} % of {:.2f} GB/s read\n", name, out, k,
             rate / 1e9, 100 * rate / limit, limit / 1e9);
}

void many_rows(const Context& context, DType dtype, const char* name, int64_t rows, int64_t out,
               int64_t k) {
  std::vector<Tensor> storage;
  const QuantView weight = random_weight(storage, dtype, out, k);
  const Tensor x(DType::kBF16, {rows, k});
  for (int64_t i = 0; i < rows * k; ++i) {
    x.as<BFloat16>()[i] = to_bfloat16(static_cast<float>(i % 7) - 3);
  }
  const Tensor y(DType::kBF16, {rows, out});
  BaselineProduct baseline(rows, out, k, context.pool.num_threads());
  Samples product;
  Samples library;
  for (int i = 0; i < kRepeats; ++i) {
    if (baseline.available()) library.add(seconds([&] { baseline.run(); }));
    product.add(seconds([&] {
      context.workspace.shared().reset();
      linear(context,
             {.weight = weight,
              .x = x,
              .y = y,
              .rounding = dtype == DType::kBF16 ? InputRounding::kNone : InputRounding::kFp8});
    }));
  }
  const double operations = 2.0 * static_cast<double>(rows * out * k);
  const double rate = operations / product.median();
  fmt::print("{:4} rows {:5} [{}, {}]: {:6.1f} GFLOP/s", rows, name, out, k, rate / 1e9);
  if (baseline.available()) {
    const double limit = operations / library.median();
    fmt::print(", {:3.0f} % of oneDNN bf16's {:.1f}", 100 * rate / limit, limit / 1e9);
  }
  fmt::print("\n");
}

void run() {
  // The caller is not pinned: oneDNN's threads would inherit its one processor.
  ThreadPool pool(0, ThreadPool::Pinning::kCores);
  cpu::Workspace workspace(pool.num_threads());
  const Context context{pool, cpu::choose_kernels(), workspace};
  const cpu::FlushDenormals flush;
  fmt::print("level {}, {} threads, fp32 multiply-add peak {:.1f} GFLOP/s\n", context.kernels.level,
             pool.num_threads(), cpu::peak_operations_per_second(pool) / 1e9);
  for (const int64_t k : {5120, 2304}) {
    one_row(context, DType::kE4M3, "FP8", k);
    one_row(context, DType::kE2M1x2, "FP4", k);
    one_row(context, DType::kBF16, "bf16", k);
  }
  for (const int64_t rows : {256, 512}) {
    many_rows(context, DType::kE4M3, "FP8", rows, 2304, 5120);
    many_rows(context, DType::kE2M1x2, "FP4", rows, 2304, 5120);
    many_rows(context, DType::kBF16, "bf16", rows, 2304, 5120);
  }
}

}  // namespace
}  // namespace deepinfer::bench

int main() {
  deepinfer::bench::run();
}
