#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "cuda/device/formats.cuh"
#include "cuda/device/load.cuh"
#include "cuda/device/norm.cuh"
#include "cuda/error.h"
#include "cuda/gemm.h"
#include "cuda/ops/ops.h"

namespace deepinfer::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kCodesPerLane = 4;

struct HashArgs {
  const int32_t* context;  // [B, N]
  int64_t context_stride;
  int ngram;                 // N
  const int32_t* token_map;  // [V]
  int32_t pad;
  const int64_t* multipliers;  // [N]
  const int64_t* primes;       // [C]
  const int64_t* offsets;      // [C]
  int columns;                 // C
  const int64_t* rows;         // [B, C] if codes and scales are [B, C, …]: gathered by the host
  const uint8_t* codes;        // [rows, w] on the device, or on the host as the device sees it
  int64_t codes_stride;
  const uint8_t* scales;  // [rows, w/32]
  int64_t scales_stride;
  int64_t table_rows;
  int width;           // w
  BFloat16* gathered;  // [B, C·w]
  volatile Fault* fault;
  int64_t* trace_rows;
};

/// The table row of column c (ops::engram_rows): a hash of the last tokens, as
/// many as the column's order says. Nothing is seen beyond a dead position or
/// the start.
__device__ int64_t table_row(const HashArgs& a, const int32_t* tokens, int c) {
  const int order = c / (a.columns / (a.ngram - 1)) + 2;
  uint64_t hash = 0;
  bool blocked = false;
  for (int i = 0; i < order; ++i) {
    blocked = blocked || tokens[i] < 0;
    const int64_t id = blocked ? a.pad : a.token_map[tokens[i]];
    hash ^= static_cast<uint64_t>(id) * static_cast<uint64_t>(a.multipliers[i]);
  }
  return static_cast<int64_t>(hash % static_cast<uint64_t>(a.primes[c])) + a.offsets[c];
}

/// The table rows of a row, for the host.
__global__ void rows_kernel(const HashArgs a, int64_t* rows) {
  const int64_t b = blockIdx.x;
  for (int c = static_cast<int>(threadIdx.x); c < a.columns; c += kThreads) {
    rows[b * a.columns + c] = table_row(a, a.context + b * a.context_stride, c);
  }
}

/// A block per row, a warp per table row: with the table on the host, all of
/// them are on their way over PCIe at once.
__global__ void gather_kernel(const HashArgs a) {
  const int64_t b = blockIdx.x;
  const int32_t* tokens = a.context + b * a.context_stride;
  for (int c = warp_id(); c < a.columns; c += kThreads / kWarp) {
    const int64_t row = a.rows != nullptr ? a.rows[b * a.columns + c] : table_row(a, tokens, c);
    if (a.trace_rows != nullptr && lane_id() == 0) a.trace_rows[b * a.columns + c] = row;
    BFloat16* out = a.gathered + (b * a.columns + c) * a.width;
    if (row < 0 || row >= a.table_rows) continue;  // a bug of the caller
    const int64_t at = a.rows != nullptr ? b * a.columns + c : row;
    for (int i = lane_id() * kCodesPerLane; i < a.width; i += kWarp * kCodesPerLane) {
      const uint32_t codes = *reinterpret_cast<const uint32_t*>(a.codes + at * a.codes_stride + i);
      const uint8_t scale_code = a.scales[at * a.scales_stride + i / 32];
      const float scale = e8m0_to_float(scale_code);
      float values[kCodesPerLane];
      bool is_nan = scale_code == 0xFF;
#pragma unroll
      for (int k = 0; k < kCodesPerLane; ++k) {
        const auto code = static_cast<uint8_t>(codes >> (8 * k));
        is_nan = is_nan || (code & 0x7F) == 0x7F;
        values[k] = decode_e4m3(code) * scale;
      }
      if (is_nan) a.fault->bad_table_row = row;  // any of them will do
      *reinterpret_cast<uint2*>(out + i) =
          make_uint2(pack_bf16(values[0], values[1]), pack_bf16(values[2], values[3]));
    }
  }
}

struct WriteArgs {
  const int32_t* context;  // [B, N]
  int64_t context_stride;
  const BFloat16* projected;  // [B, m + 1, d]: keys, then the value
  PlainView q_weight;         // [m, d]
  PlainView k_weight;         // [m, d]
  float eps;
  int d;
  BFloat16* streams;  // [B, m, d]
  int64_t streams_stride;
  float* trace_gate;  // [B, m]; may be null
};

/// A block per (row, stream): gate and write (spec/model.md §7).
template <int kVec>
__global__ void __launch_bounds__(kThreads) write_kernel(const WriteArgs a) {
  const int64_t b = blockIdx.x;
  const int64_t j = blockIdx.y;
  const int64_t m = gridDim.y;
  BFloat16* stream = a.streams + b * a.streams_stride + j * a.d;
  const BFloat16* key = a.projected + (b * (m + 1) + j) * a.d;
  const BFloat16* value = a.projected + (b * (m + 1) + m) * a.d;
  float sums[3] = {};  // query · key, Σ stream², Σ key²
  for (int i = static_cast<int>(threadIdx.x) * kVec; i < a.d; i += kThreads * kVec) {
    float s[kVec];
    float k[kVec];
    load_bf16<kVec>(stream + i, s);
    load_bf16<kVec>(key + i, k);
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      const int64_t at = j * a.d + i + v;
      sums[0] = fma_rn(s[v] * (a.q_weight[at] * a.k_weight[at]), k[v], sums[0]);
      sums[1] = fma_rn(s[v], s[v], sums[1]);
      sums[2] = fma_rn(k[v], k[v], sums[2]);
    }
  }
  block_sum<kThreads>(sums);
  const auto n = static_cast<float>(a.d);
  const float score =
      sums[0] / (sqrtf(sums[1] / n + a.eps) * sqrtf(sums[2] / n + a.eps)) / sqrtf(n);
  const bool dead = a.context[b * a.context_stride] < 0;
  const float gate = dead ? 0.0F : sigmoid_f32(copysignf(sqrtf(fmaxf(fabsf(score), 1e-6F)), score));
  if (a.trace_gate != nullptr && threadIdx.x == 0) a.trace_gate[b * m + j] = gate;
  for (int i = static_cast<int>(threadIdx.x) * kVec; i < a.d; i += kThreads * kVec) {
    float s[kVec];
    float w[kVec];
    load_bf16<kVec>(stream + i, s);
    load_bf16<kVec>(value + i, w);
#pragma unroll
    for (int v = 0; v < kVec; ++v) s[v] = fma_rn(gate, w[v], s[v]);
    store_bf16<kVec>(stream + i, s);
  }
}

/// Tells the kernel that a range of a mapped file is about to be read.
void will_need(const uint8_t* begin, int64_t bytes) {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<uintptr_t>(begin);
  const uintptr_t aligned = address / page * page;
  ::madvise(reinterpret_cast<void*>(aligned), address - aligned + static_cast<size_t>(bytes),
            MADV_WILLNEED);
}

/// Placement "file": the table is a mapped file that only the host reads. The rows' numbers come to
/// the host, which waits for the step so far; this is the only wait inside a step.
void gather_on_host(const QuantView& table, int64_t num_rows, HashArgs& hash, Context& context) {
  const int64_t count = num_rows * hash.columns;
  const int64_t width = table.cols();
  const int64_t num_scales = table.scale.dim(1);
  auto* rows = context.workspace->take<int64_t>(count);
  rows_kernel<<<static_cast<unsigned>(num_rows), kThreads, 0, context.stream>>>(hash, rows);
  DEEPINFER_CUDA_LAUNCHED("the rows of engram");
  std::vector<int64_t> numbers(static_cast<size_t>(count));
  DEEPINFER_CUDA(cudaMemcpyAsync(numbers.data(), rows, numbers.size() * sizeof(int64_t),
                                 cudaMemcpyDeviceToHost, context.stream));
  DEEPINFER_CUDA(cudaStreamSynchronize(context.stream));

  for (const int64_t row : numbers) {
    DEEPINFER_CHECK(row >= 0 && row < table.rows(), "engram: row {} of a table of {}", row,
                    table.rows());
    will_need(table.weight.row<const uint8_t>(row), width);
    will_need(table.scale.row<const uint8_t>(row), num_scales);
  }
  std::vector<uint8_t> codes(static_cast<size_t>(count * width));
  std::vector<uint8_t> scales(static_cast<size_t>(count * num_scales));
  for (size_t i = 0; i < numbers.size(); ++i) {
    std::copy_n(table.weight.row<const uint8_t>(numbers[i]), width,
                codes.begin() + static_cast<int64_t>(i) * width);
    std::copy_n(table.scale.row<const uint8_t>(numbers[i]), num_scales,
                scales.begin() + static_cast<int64_t>(i) * num_scales);
  }
  const auto upload = [&context](const std::vector<uint8_t>& bytes) {
    auto* target = context.workspace->take<uint8_t>(static_cast<int64_t>(bytes.size()));
    // From pageable memory: the call returns when the bytes have been read.
    DEEPINFER_CUDA(cudaMemcpyAsync(target, bytes.data(), bytes.size(), cudaMemcpyHostToDevice,
                                   context.stream));
    return target;
  };
  hash.rows = rows;
  hash.codes = upload(codes);
  hash.codes_stride = width;
  hash.scales = upload(scales);
  hash.scales_stride = num_scales;
}

}  // namespace

void engram(const ops::EngramParams& p, Context& context) {
  const int64_t rows = p.streams.dim(0);
  if (rows == 0) return;
  const int64_t m = p.streams.dim(1);
  const int64_t d = p.streams.dim(2);
  const int64_t inputs = p.primes.dim(0) * p.table.cols();
  const TensorView gathered(context.workspace->take<BFloat16>(rows * inputs), DType::kBF16,
                            {rows, inputs});
  const TensorView projected(context.workspace->take<BFloat16>(rows * (m + 1) * d), DType::kBF16,
                             {rows, (m + 1) * d});
  HashArgs hash{.context = p.context.as<const int32_t>(),
                .context_stride = p.context.stride(0),
                .ngram = static_cast<int>(p.context.dim(1)),
                .token_map = p.token_map.as<const int32_t>(),
                .pad = p.pad,
                .multipliers = p.multipliers.as<const int64_t>(),
                .primes = p.primes.as<const int64_t>(),
                .offsets = p.offsets.as<const int64_t>(),
                .columns = static_cast<int>(p.primes.dim(0)),
                .rows = nullptr,
                .codes = p.table.weight.as<const uint8_t>(),
                .codes_stride = p.table.weight.stride(0),
                .scales = p.table.scale.as<const uint8_t>(),
                .scales_stride = p.table.scale.stride(0),
                .table_rows = p.table.rows(),
                .width = static_cast<int>(p.table.cols()),
                .gathered = gathered.as<BFloat16>(),
                .fault = context.fault,
                .trace_rows = p.trace_rows.empty() ? nullptr : p.trace_rows.as<int64_t>()};
  if (p.table.weight.device().kind == DeviceKind::kHost) {
    gather_on_host(p.table, rows, hash, context);
  }
  gather_kernel<<<static_cast<unsigned>(rows), kThreads, 0, context.stream>>>(hash);
  DEEPINFER_CUDA_LAUNCHED("the gather of engram");
  linear(p.wkv, gathered, InputRounding::kFp8, projected, context);

  const WriteArgs write{.context = hash.context,
                        .context_stride = hash.context_stride,
                        .projected = projected.as<const BFloat16>(),
                        .q_weight = plain(p.q_weight),
                        .k_weight = plain(p.k_weight),
                        .eps = p.eps,
                        .d = static_cast<int>(d),
                        .streams = p.streams.as<BFloat16>(),
                        .streams_stride = p.streams.stride(0),
                        .trace_gate = p.trace_gate.empty() ? nullptr : p.trace_gate.as<float>()};
  const dim3 grid(static_cast<unsigned>(rows), static_cast<unsigned>(m));
  const auto kernel =
      reads_vectors(d, {&p.streams, &projected}) ? write_kernel<8> : write_kernel<1>;
  kernel<<<grid, kThreads, 0, context.stream>>>(write);
  DEEPINFER_CUDA_LAUNCHED("the write of engram");
}

}  // namespace deepinfer::cuda
