// Products and the operations made of them at the released sizes: median time by graph replay with
// weights rotating beyond the L2 cache, beside the bound max(bytes / read bandwidth, operations /
// bf16 peak) and, for single products, cuBLASLt's bf16 product of the same shape, all of one run.

#include <algorithm>
#include <cstdio>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "bench/cuda/library.h"
#include "cuda/arena.h"
#include "cuda/context.h"
#include "cuda/error.h"
#include "cuda/gemm.h"
#include "cuda/ops/ops.h"
#include "cuda/stream.h"

namespace deepinfer::bench {
namespace {

using cuda::Context;
using cuda::InputRounding;

constexpr int64_t kD = 5120;
constexpr int64_t kExperts = 384;
constexpr int64_t kChoices = 6;
constexpr int64_t kWidth = 2304;
constexpr int64_t kMaxRows = 4096;
constexpr int64_t kCacheBytes = int64_t{256} << 20;  // several times the L2
constexpr int kRepeats = 15;

/// Sums a buffer: reads it once.
__global__ void read_kernel(const uint4* from, int64_t count, uint32_t* sink) {
  uint32_t sum = 0;
  const int64_t stride = int64_t{gridDim.x} * blockDim.x;
  int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (; i + 3 * stride < count; i += 4 * stride) {
    uint4 v[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) v[j] = __ldcs(from + i + j * stride);
#pragma unroll
    for (int j = 0; j < 4; ++j) sum += v[j].x ^ v[j].y ^ v[j].z ^ v[j].w;
  }
  if (sum == 0x12345678) *sink = sum;
}

/// Random bytes; `mask` and `base` shape them into what a format allows.
__global__ void fill_kernel(uint32_t* to, int64_t words, uint32_t mask, uint32_t base,
                            uint32_t seed) {
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < words;
       i += int64_t{gridDim.x} * blockDim.x) {
    uint32_t x = static_cast<uint32_t>(i) * 2654435761U + seed;
    x ^= x >> 16;
    x *= 0x7FEB352DU;
    x ^= x >> 15;
    x *= 0x846CA68BU;
    x ^= x >> 16;
    to[i] = (x & mask) + base;
  }
}

class Bench {
 public:
  Bench() {
    DEEPINFER_CUDA(cudaMemset(counters_, 0, cuda::kNumCounters * sizeof(int32_t)));
    cudaDeviceProp properties{};
    DEEPINFER_CUDA(cudaGetDeviceProperties(&properties, 0));
    context_ = {.stream = stream_.get(),
                .workspace = &workspace_,
                .staging = &staging_,
                .tables = &tables_,
                .counters = counters_,
                .num_multiprocessors = properties.multiProcessorCount};
    int driver = 0;
    DEEPINFER_CUDA(cudaDriverGetVersion(&driver));
    std::printf("%s, CUDA driver %d.%d\n", properties.name, driver / 1000, driver % 1000 / 10);
    measure_limits();
    x_ = bf16({kMaxRows, 32768}, 1);
    y_ = zeros(DType::kBF16, {kMaxRows, 32768});
  }

  void run() {
    std::printf("%-22s %5s %9s %9s %9s %9s %6s %9s %6s\n", "operation", "rows", "us", "MB", "GFLOP",
                "bound us", "frac", "library", "ratio");
    for (const auto& [name, outputs, columns] :
         std::initializer_list<Shape3>{{"wq_a", 1280, kD},
                                       {"attn.wkv", 512, kD},
                                       {"wq_b", 32768, 1280},
                                       {"wo_b", kD, 8192},
                                       {"indexer.wq_b", 4096, 1280},
                                       {"engram.wkv", 25600, 6144}}) {
      product(name, DType::kE4M3, outputs, columns, kMaxRows);
    }
    product("gate", DType::kBF16, kExperts, kD, kMaxRows);
    product("compressor.wkv", DType::kBF16, 512, kD, kMaxRows);
    product("head", DType::kBF16, 129280, kD, 256);
    output_projection();
    qkv();
    route();
    experts();
  }

 private:
  struct Shape3 {
    const char* name;
    int64_t outputs;
    int64_t columns;
  };

  TensorView zeros(DType dtype, const Shape& shape) {
    const TensorView view(arena_.take(shape.num_elements() * size_of(dtype)), dtype, shape);
    DEEPINFER_CUDA(cudaMemset(view.data(), 0, static_cast<size_t>(view.num_bytes())));
    return view;
  }
  TensorView filled(DType dtype, const Shape& shape, uint32_t mask, uint32_t base, uint32_t seed) {
    const TensorView view(arena_.take(shape.num_elements() * size_of(dtype) + 4), dtype, shape);
    fill_kernel<<<1024, 256>>>(static_cast<uint32_t*>(view.data()), (view.num_bytes() + 3) / 4,
                               mask, base, seed);
    DEEPINFER_CUDA_LAUNCHED("fill");
    return view;
  }
  /// Of both signs and magnitudes from 1/8 to 2.
  TensorView bf16(const Shape& shape, uint32_t seed) {
    return filled(DType::kBF16, shape, 0x81FF81FF, 0x3E003E00, seed);
  }
  QuantView weight(DType dtype, int64_t outputs, int64_t columns, uint32_t seed) {
    if (dtype == DType::kBF16) return {bf16({outputs, columns}, seed), {}, 1};
    const bool is_fp4 = dtype == DType::kE2M1x2;
    const int64_t scale_rows = is_fp4 ? 1 : 32;
    return {is_fp4 ? filled(dtype, {outputs, columns / 2}, 0xFFFFFFFF, 0, seed)
                   : filled(dtype, {outputs, columns}, 0xBFBFBFBF, 0, seed),
            filled(DType::kE8M0, {(outputs + scale_rows - 1) / scale_rows, columns / 32},
                   0x03030303, 0x74747474, seed),
            scale_rows};
  }
  static double bytes_of(const QuantView& w) {
    return static_cast<double>(w.weight.num_bytes() + (w.scale.empty() ? 0 : w.scale.num_bytes()));
  }

  /// Median microseconds of one call of `body(i)`, i counting rotating operands.
  double time(int calls, const std::function<void(int)>& body) {
    for (int i = 0; i < calls; ++i) body(i);
    stream_.synchronize();
    const cuda::Graph graph = cuda::Graph::capture(stream_.get(), [&] {
      for (int i = 0; i < calls; ++i) body(i);
    });
    const cuda::Event start(true);
    const cuda::Event end(true);
    std::vector<float> times;
    for (int repeat = 0; repeat < kRepeats + 2; ++repeat) {
      start.record(stream_.get());
      graph.launch(stream_.get());
      end.record(stream_.get());
      end.synchronize();
      if (repeat >= 2) times.push_back(end.elapsed_ms(start));
    }
    std::ranges::sort(times);
    return static_cast<double>(times[times.size() / 2]) * 1e3 / calls;
  }

  void measure_limits() {
    constexpr int64_t kBytes = int64_t{4} << 30;
    const TensorView data = filled(DType::kU8, {kBytes}, 0xFFFFFFFF, 0, 7);
    const double us = time(1, [&](int) {
      read_kernel<<<132 * 8, 512, 0, stream_.get()>>>(static_cast<const uint4*>(data.data()),
                                                      kBytes / 16,
                                                      reinterpret_cast<uint32_t*>(counters_));
    });
    read_bytes_per_us_ = static_cast<double>(kBytes) / us;
    std::printf("read %.2f TB/s\n", read_bytes_per_us_ / 1e6);
    library_ = MatrixLibrary::open();
    constexpr int64_t kN = 8192;
    operations_per_us_ = 800e6;
    if (library_) {
      const TensorView a = bf16({kN, kN}, 11);
      const TensorView b = bf16({kN, kN}, 12);
      const TensorView c = zeros(DType::kBF16, {kN, kN});
      const double product_us = time(2, [&](int) {
        library_->multiply(a.data(), b.data(), c.data(), kN, kN, kN, stream_.get());
      });
      operations_per_us_ = 2.0 * kN * kN * kN / product_us;
      std::printf("cuBLASLt bf16 8192 x 8192 x 8192: %.0f TFLOP/s\n", operations_per_us_ / 1e6);
    } else {
      std::printf("no libcublasLt: bf16 peak taken as %.0f TFLOP/s\n", operations_per_us_ / 1e6);
    }
  }

  void print(const std::string& name, int64_t rows, double us, double bytes, double operations,
             double library_us = 0) {
    const double bound = std::max(bytes / read_bytes_per_us_, operations / operations_per_us_);
    std::printf("%-22s %5ld %9.2f %9.2f %9.2f %9.2f %6.2f", name.c_str(), rows, us, bytes / 1e6,
                operations / 1e9, bound, bound / us);
    if (library_us > 0) std::printf(" %9.2f %6.2f", library_us, us / library_us);
    std::printf("\n");
    std::fflush(stdout);
  }

  void product(const char* name, DType dtype, int64_t outputs, int64_t columns, int64_t max_rows) {
    std::vector<QuantView> weights;
    const double bytes = bytes_of(weight(dtype, outputs, columns, 0));
    const int copies = static_cast<int>(std::clamp<double>(kCacheBytes / bytes, 2, 24));
    for (int i = 0; i < copies; ++i) weights.push_back(weight(dtype, outputs, columns, i));
    std::vector<TensorView> plain;
    const int plain_copies =
        static_cast<int>(std::clamp<int64_t>(kCacheBytes / (outputs * columns * 2), 2, 12));
    if (library_) {
      for (int i = 0; i < plain_copies; ++i) plain.push_back(bf16({outputs, columns}, i));
    }
    for (const int64_t rows : {1, 16, 64, 256, 1024, 4096}) {
      if (rows > max_rows) continue;
      const TensorView x(x_.data(), DType::kBF16, {rows, columns});
      const TensorView y = outputs > 32768 ? large_y(rows, outputs)
                                           : TensorView(y_.data(), DType::kBF16, {rows, outputs});
      const auto rounding = dtype == DType::kBF16 ? InputRounding::kNone : InputRounding::kFp8;
      const double us = time(copies, [&](int i) {
        cuda::linear(weights[static_cast<size_t>(i)], x, rounding, y, context_);
      });
      double library_us = 0;
      if (library_) {
        library_us = time(plain_copies, [&](int i) {
          library_->multiply(plain[static_cast<size_t>(i)].data(), x.data(), y.data(), outputs,
                             columns, rows, stream_.get());
        });
      }
      const auto n = static_cast<double>(rows);
      print(name, rows, us, bytes + 2 * n * static_cast<double>(outputs + columns),
            2 * n * static_cast<double>(outputs * columns), library_us);
    }
  }
  TensorView large_y(int64_t rows, int64_t outputs) {
    if (large_y_.empty()) large_y_ = zeros(DType::kBF16, {256, outputs});
    return large_y_.slice(0, rows);
  }

  void output_projection() {
    constexpr int64_t kHeads = 64;
    constexpr int64_t kHeadDim = 512;
    std::vector<QuantView> a;
    std::vector<QuantView> b;
    for (uint32_t i = 0; i < 4; ++i) {
      a.push_back(weight(DType::kE4M3, 8192, 4096, i));
      b.push_back(weight(DType::kE4M3, kD, 8192, i));
    }
    for (const int64_t rows : {1, 16, 64, 256, 1024, 4096}) {
      const auto n = static_cast<double>(rows);
      const double us = time(4, [&](int i) {
        cuda::output_projection({.o = {x_.data(), DType::kBF16, {rows, kHeads, kHeadDim}},
                                 .groups = 8,
                                 .wo_a = a[static_cast<size_t>(i)],
                                 .wo_b = b[static_cast<size_t>(i)],
                                 .y = {y_.data(), DType::kBF16, {rows, kD}}},
                                context_);
      });
      print("output_projection", rows, us,
            bytes_of(a[0]) + bytes_of(b[0]) + 2 * n * (kHeads * kHeadDim + kD),
            2 * n * (8192.0 * 4096 + 8192.0 * kD));
    }
  }

  void qkv() {
    const TensorView norm = bf16({kD}, 3);
    const TensorView position = zeros(DType::kI64, {kMaxRows});
    const ops::Rope rope{zeros(DType::kF32, {32})};
    std::vector<ops::QkvParams> all;
    for (uint32_t i = 0; i < 5; ++i) {
      ops::QkvParams p;
      p.wq_a = weight(DType::kE4M3, 1280, kD, i);
      p.wq_b = weight(DType::kE4M3, 32768, 1280, i);
      p.wkv = weight(DType::kE4M3, 512, kD, i);
      p.q_norm = norm.slice(0, 1280);
      p.kv_norm = norm.slice(0, 512);
      p.rope = rope;
      p.eps = 1e-20F;
      all.push_back(p);
    }
    const TensorView r = zeros(DType::kBF16, {kMaxRows, 1280});
    const TensorView codes = zeros(DType::kE4M3, {kMaxRows, 512});
    const TensorView scales = zeros(DType::kE8M0, {kMaxRows, 16});
    for (const int64_t rows : {1, 16, 64, 256, 1024, 4096}) {
      const double us = time(5, [&](int i) {
        ops::QkvParams p = all[static_cast<size_t>(i)];
        p.x = {x_.data(), DType::kBF16, {rows, kD}};
        p.position = position.slice(0, rows);
        p.r = r.slice(0, rows);
        p.q = {y_.data(), DType::kBF16, {rows, 64, 512}};
        p.window_codes = codes.slice(0, rows);
        p.window_scales = scales.slice(0, rows);
        cuda::qkv(p, context_);
      });
      const auto n = static_cast<double>(rows);
      print("qkv", rows, us,
            bytes_of(all[0].wq_a) + bytes_of(all[0].wq_b) + bytes_of(all[0].wkv) +
                n * (2 * (kD + 1280 + 32768) + 528),
            2 * n * (1792.0 * kD + 32768.0 * 1280));
    }
  }

  void route() {
    std::vector<TensorView> gates;
    for (uint32_t i = 0; i < 24; ++i) gates.push_back(bf16({kExperts, kD}, i));
    const TensorView bias = zeros(DType::kF32, {kExperts});
    const TensorView chosen = zeros(DType::kI32, {kMaxRows, kChoices});
    const TensorView weights = zeros(DType::kF32, {kMaxRows, kChoices});
    for (const int64_t rows : {1, 16, 64, 256, 1024, 4096}) {
      const double us = time(24, [&](int i) {
        ops::RouteParams p;
        p.x = {x_.data(), DType::kBF16, {rows, kD}};
        p.gate = gates[static_cast<size_t>(i)];
        p.bias = bias;
        p.experts = chosen.slice(0, rows);
        p.weights = weights.slice(0, rows);
        cuda::route(p, context_);
      });
      const auto n = static_cast<double>(rows);
      print("route", rows, us, 2.0 * kExperts * kD + n * 2 * kD, 2 * n * kExperts * kD);
    }
  }

  /// All 384 experts in FP4 are many times the L2: nothing else rotates.
  void experts() {
    std::vector<ops::ExpertWeights> routed;
    for (uint32_t e = 0; e < kExperts; ++e) {
      routed.push_back({.w1 = weight(DType::kE2M1x2, kWidth, kD, 3 * e),
                        .w3 = weight(DType::kE2M1x2, kWidth, kD, 3 * e + 1),
                        .w2 = weight(DType::kE2M1x2, kD, kWidth, 3 * e + 2)});
    }
    const ops::ExpertWeights shared{.w1 = weight(DType::kE4M3, kWidth, kD, 1),
                                    .w3 = weight(DType::kE4M3, kWidth, kD, 2),
                                    .w2 = weight(DType::kE4M3, kD, kWidth, 3)};
    const TensorView slot_rows = zeros(DType::kBF16, {kMaxRows, kChoices, kD});
    std::mt19937 random(5);
    for (const int64_t rows : {1, 16, 64, 256, 1024, 4096}) {
      constexpr int kCalls = 4;
      std::vector<TensorView> chosen;
      double active = 0;
      for (int call = 0; call < kCalls; ++call) {
        std::vector<int32_t> ids;
        std::vector<bool> used(kExperts);
        for (int64_t b = 0; b < rows; ++b) {
          std::vector<int32_t> row;
          while (static_cast<int64_t>(row.size()) < kChoices) {
            const auto id = static_cast<int32_t>(random() % kExperts);
            if (std::ranges::count(row, id) == 0) row.push_back(id);
          }
          for (const int32_t id : row) used[static_cast<size_t>(id)] = true;
          ids.insert(ids.end(), row.begin(), row.end());
        }
        active += static_cast<double>(std::ranges::count(used, true)) / kCalls;
        chosen.push_back(zeros(DType::kI32, {rows, kChoices}));
        DEEPINFER_CUDA(
            cudaMemcpy(chosen.back().data(), ids.data(), ids.size() * 4, cudaMemcpyHostToDevice));
      }
      const TensorView weights = bf16({rows, kChoices, 2}, 9);
      const double us = time(kCalls, [&](int i) {
        cuda::experts({.x = {x_.data(), DType::kBF16, {rows, kD}},
                       .experts = chosen[static_cast<size_t>(i)],
                       .weights = {weights.data(), DType::kF32, {rows, kChoices}},
                       .routed = routed,
                       .shared = shared,
                       .limit = 10,
                       .slot_rows = slot_rows.slice(0, rows),
                       .shared_rows = {y_.data(), DType::kBF16, {rows, kD}}},
                      context_);
      });
      const auto n = static_cast<double>(rows);
      const double expert_bytes = 2 * bytes_of(routed[0].w1) + bytes_of(routed[0].w2);
      const double shared_bytes = 2 * bytes_of(shared.w1) + bytes_of(shared.w2);
      print("experts", rows, us, active * expert_bytes + shared_bytes + 2 * n * kD * (2 + kChoices),
            2 * n * (kChoices + 1) * 3.0 * kWidth * kD);
    }
  }

  static constexpr int64_t kWorkspaceBytes = int64_t{4} << 30;
  static constexpr int64_t kStagingBytes = int64_t{4} << 20;
  cuda::Stream stream_;
  cuda::Arena arena_;
  cuda::Workspace workspace_{arena_.take(kWorkspaceBytes), kWorkspaceBytes};
  cuda::Staging staging_{arena_.take(kStagingBytes), kStagingBytes};
  cuda::PointerTables tables_;
  int32_t* counters_ = reinterpret_cast<int32_t*>(
      arena_.take(cuda::kNumCounters * static_cast<int64_t>(sizeof(int32_t))));
  Context context_;
  std::unique_ptr<MatrixLibrary> library_;
  double read_bytes_per_us_ = 0;
  double operations_per_us_ = 0;
  TensorView x_;
  TensorView y_;
  TensorView large_y_;
};

}  // namespace
}  // namespace deepinfer::bench

int main() {
  deepinfer::bench::Bench().run();
  return 0;
}
