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
  const uint8_t* codes;        // [rows, w] on the device, or on the host as the device sees it
  int64_t codes_stride;
  const uint8_t* scales;  // [rows, w/32]
  int64_t scales_stride;
  int64_t table_rows;
  int width;           // w
  BFloat16* gathered;  // [B, C·w]
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

/// A block per row, a warp per table row: with the table on the host, all of
/// them are on their way over PCIe at once.
__global__ void gather_kernel(const HashArgs a) {
  const int64_t b = blockIdx.x;
  const int32_t* tokens = a.context + b * a.context_stride;
  for (int c = warp_id(); c < a.columns; c += kThreads / kWarp) {
    const int64_t row = table_row(a, tokens, c);
    if (a.trace_rows != nullptr && lane_id() == 0) a.trace_rows[b * a.columns + c] = row;
    BFloat16* out = a.gathered + (b * a.columns + c) * a.width;
    if (row < 0 || row >= a.table_rows) continue;  // a bug of the caller
    for (int i = lane_id() * kCodesPerLane; i < a.width; i += kWarp * kCodesPerLane) {
      const uint32_t codes = *reinterpret_cast<const uint32_t*>(a.codes + row * a.codes_stride + i);
      const float scale = e8m0_to_float(a.scales[row * a.scales_stride + i / 32]);
      float values[kCodesPerLane];
#pragma unroll
      for (int k = 0; k < kCodesPerLane; ++k) {
        values[k] = decode_e4m3(static_cast<uint8_t>(codes >> (8 * k))) * scale;
      }
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
  const HashArgs hash{.context = p.context.as<const int32_t>(),
                      .context_stride = p.context.stride(0),
                      .ngram = static_cast<int>(p.context.dim(1)),
                      .token_map = p.token_map.as<const int32_t>(),
                      .pad = p.pad,
                      .multipliers = p.multipliers.as<const int64_t>(),
                      .primes = p.primes.as<const int64_t>(),
                      .offsets = p.offsets.as<const int64_t>(),
                      .columns = static_cast<int>(p.primes.dim(0)),
                      .codes = p.table.weight.as<const uint8_t>(),
                      .codes_stride = p.table.weight.stride(0),
                      .scales = p.table.scale.as<const uint8_t>(),
                      .scales_stride = p.table.scale.stride(0),
                      .table_rows = p.table.rows(),
                      .width = static_cast<int>(p.table.cols()),
                      .gathered = gathered.as<BFloat16>(),
                      .trace_rows = p.trace_rows.empty() ? nullptr : p.trace_rows.as<int64_t>()};
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
