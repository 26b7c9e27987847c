#include "cuda/device/norm.cuh"
#include "cuda/error.h"
#include "cuda/ops/ops.h"

namespace deepinfer::cuda {
namespace {

// The coefficients' product a = fn · flatten(S) has few outputs (24) and a long K (20480), and fn
// is fp32. K is cut in segments of 1024: a block computes one segment for four rows (so each value
// of fn is read once for four), a second kernel adds the segments in ascending order. Blocks beyond
// the segments compute the rows' input x. Bound: for few rows reading fn (2 MB), for many fp32 FMA.
constexpr int kThreads = 256;
constexpr int kSegment = 4 * kThreads;  // columns: four per thread
constexpr int kRows = 4;                // per block
constexpr int kGroup = kWarp / kRows;   // coefficients whose sums a warp exchanges at once
constexpr int kMixRows = 4;             // rows (warps) per block of the second kernel
constexpr int kMaxStreams = 16;

struct MixArgs {
  const BFloat16* streams;  // [B, m, d]
  int64_t streams_stride;
  int num_rows;
  int m;
  int d;
  const float* fn;  // [coefficients, m·d]
  int coefficients;
  int segments;
  float* partial;  // [B, segments, coefficients + 1]; the last is Σ S²
  const float* pre_prev;
  int64_t pre_prev_stride;
  PlainView norm;
  float eps;
  BFloat16* x;  // [B, d], out
  int64_t x_stride;
};

/// Columns [k, k + 4) of a row of `n`, zeros beyond its end.
template <bool kVectors>
__device__ __forceinline__ void load_four(const float* row, int k, int n, float (&out)[4]) {
  if (kVectors) {
    const float4 raw = k < n ? *reinterpret_cast<const float4*>(row + k) : float4{0, 0, 0, 0};
    out[0] = raw.x, out[1] = raw.y, out[2] = raw.z, out[3] = raw.w;
  } else {
    for (int i = 0; i < 4; ++i) out[i] = k + i < n ? row[k + i] : 0.0F;
  }
}
template <bool kVectors>
__device__ __forceinline__ void load_four(const BFloat16* row, int k, int n, float (&out)[4]) {
  if (kVectors) {
    const uint2 raw = k < n ? *reinterpret_cast<const uint2*>(row + k) : uint2{0, 0};
    out[0] = __uint_as_float(raw.x << 16), out[1] = __uint_as_float(raw.x & 0xFFFF0000U);
    out[2] = __uint_as_float(raw.y << 16), out[3] = __uint_as_float(raw.y & 0xFFFF0000U);
  } else {
    for (int i = 0; i < 4; ++i) out[i] = k + i < n ? to_float(row[k + i]) : 0.0F;
  }
}

template <bool kVectors>
__global__ void __launch_bounds__(kThreads) site_product_kernel(const MixArgs a) {
  extern __shared__ float of_warp[];  // [warps, groups · 32 + kRows]
  const int first_row = static_cast<int>(blockIdx.y) * kRows;
  const int n = a.m * a.d;
  if (static_cast<int>(blockIdx.x) >= a.segments) {
    const int64_t b = first_row + static_cast<int>(blockIdx.x) - a.segments;
    if (b >= a.num_rows) return;
    constexpr int kVec = kVectors ? 8 : 1;
    collapse_norm_row<kThreads, kVec>(a.streams + b * a.streams_stride,
                                      a.pre_prev + b * a.pre_prev_stride, a.m, a.d, a.norm, a.eps,
                                      a.x + b * a.x_stride, nullptr, nullptr);
    return;
  }

  const int groups = (a.coefficients + kGroup - 1) / kGroup;
  const int slots = groups * kWarp + kRows;
  const int k = static_cast<int>(blockIdx.x) * kSegment + static_cast<int>(threadIdx.x) * 4;
  float x[kRows][4] = {};
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (first_row + r < a.num_rows) {
      load_four<kVectors>(a.streams + (first_row + r) * a.streams_stride, k, n, x[r]);
    }
    float squares = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) squares = fma_rn(x[r][i], x[r][i], squares);
    squares = warp_sum(squares);
    if (lane_id() == 0) of_warp[warp_id() * slots + groups * kWarp + r] = squares;
  }
  for (int g = 0; g < groups; ++g) {
    float sums[kWarp];  // [kGroup, kRows]
#pragma unroll
    for (int c = 0; c < kGroup; ++c) {
      float w[4] = {};
      const int coefficient = g * kGroup + c;
      if (coefficient < a.coefficients) {
        load_four<kVectors>(a.fn + int64_t{coefficient} * n, k, n, w);
      }
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        float sum = 0;
#pragma unroll
        for (int i = 0; i < 4; ++i) sum = fma_rn(w[i], x[r][i], sum);
        sums[c * kRows + r] = sum;
      }
    }
    of_warp[warp_id() * slots + g * kWarp + lane_id()] = warp_transposed_sum(sums);
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < slots; i += kThreads) {
    float sum = of_warp[i];
    for (int w = 1; w < kThreads / kWarp; ++w) sum += of_warp[w * slots + i];
    const bool is_square = i >= groups * kWarp;
    const int row = first_row + (is_square ? i - groups * kWarp : i % kRows);
    const int coefficient = is_square ? a.coefficients : i / kRows;
    if (row >= a.num_rows || (!is_square && coefficient >= a.coefficients)) continue;
    a.partial[(int64_t{row} * a.segments + blockIdx.x) * (a.coefficients + 1) + coefficient] = sum;
  }
}

struct CoefficientArgs {
  const float* partial;  // [B, segments, coefficients + 1]
  int num_rows;
  int m;
  int columns;  // m·d
  int coefficients;
  int segments;
  const float* base;   // [coefficients]
  const float* scale;  // [3]
  float eps;
  float hc_eps;
  int64_t iterations;
  float* pre;   // [B, m]
  float* post;  // [B, m]
  float* comb;  // [B, m, m]
  int64_t pre_stride;
  int64_t post_stride;
  int64_t comb_stride;
};

/// comb[e] /= (sum of its row or column) + eps for all elements of [m, m], by one warp.
__device__ __forceinline__ void normalize(float* comb, int m, bool columns, float eps) {
  constexpr int kPerLane = kMaxStreams * kMaxStreams / kWarp;
  float result[kPerLane];
#pragma unroll
  for (int t = 0; t < kPerLane; ++t) {
    const int e = lane_id() + t * kWarp;
    if (e >= m * m) break;
    const int first = columns ? e % m : e / m * m;
    const int step = columns ? m : 1;
    float sum = 0;
    for (int i = 0; i < m; ++i) sum += comb[first + i * step];
    result[t] = comb[e] / (sum + eps);
  }
  __syncwarp();
#pragma unroll
  for (int t = 0; t < kPerLane; ++t) {
    const int e = lane_id() + t * kWarp;
    if (e < m * m) comb[e] = result[t];
  }
  __syncwarp();
}

/// A warp per row: adds the segments, then pre, post and the Sinkhorn iterations (spec/model.md
/// §2).
__global__ void site_coefficients_kernel(const CoefficientArgs a) {
  extern __shared__ float shared[];  // [kMixRows, coefficients + 1]
  const int b = static_cast<int>(blockIdx.x) * kMixRows + warp_id();
  if (b >= a.num_rows) return;
  float* sums = shared + warp_id() * (a.coefficients + 1);
  for (int c = lane_id(); c <= a.coefficients; c += kWarp) {
    const float* from = a.partial + int64_t{b} * a.segments * (a.coefficients + 1) + c;
    float sum = from[0];
    for (int s = 1; s < a.segments; ++s) sum += from[s * (a.coefficients + 1)];
    sums[c] = sum;
  }
  __syncwarp();
  const float factor = rms_factor(sums[a.coefficients], a.columns, a.eps);
  const int m = a.m;
  for (int j = lane_id(); j < m; j += kWarp) {
    const float to_pre = sums[j] * factor * a.scale[0] + a.base[j];
    const float to_post = sums[m + j] * factor * a.scale[1] + a.base[m + j];
    a.pre[b * a.pre_stride + j] = sigmoid_f32(to_pre) + a.hc_eps;
    a.post[b * a.post_stride + j] = 2 * sigmoid_f32(to_post);
  }
  float* comb = sums + 2 * m;
  for (int e = lane_id(); e < m * m; e += kWarp) {
    comb[e] = comb[e] * factor * a.scale[2] + a.base[2 * m + e];
  }
  __syncwarp();
  // Softmax over k: a lane per row j.
  for (int j = lane_id(); j < m; j += kWarp) {
    float* row = comb + j * m;
    float largest = row[0];
    for (int k = 1; k < m; ++k) largest = fmaxf(largest, row[k]);
    float sum = 0;
    for (int k = 0; k < m; ++k) sum += row[k] = exp_f32(row[k] - largest);
    for (int k = 0; k < m; ++k) row[k] = row[k] / sum + a.hc_eps;
  }
  __syncwarp();
  normalize(comb, m, true, a.hc_eps);
  for (int64_t i = 1; i < a.iterations; ++i) {
    normalize(comb, m, false, a.hc_eps);
    normalize(comb, m, true, a.hc_eps);
  }
  for (int e = lane_id(); e < m * m; e += kWarp) a.comb[b * a.comb_stride + e] = comb[e];
}

}  // namespace

void site_begin(const ops::SiteBeginParams& p, Context& context) {
  const auto rows = static_cast<int>(p.streams.dim(0));
  if (rows == 0) return;
  const auto m = static_cast<int>(p.streams.dim(1));
  const auto d = static_cast<int>(p.streams.dim(2));
  const auto coefficients = static_cast<int>(p.fn.dim(0));
  DEEPINFER_CHECK(m <= kMaxStreams, "site_begin: {} streams, at most {}", m, kMaxStreams);
  const int segments = (m * d + kSegment - 1) / kSegment;
  const MixArgs product{
      .streams = p.streams.as<const BFloat16>(),
      .streams_stride = p.streams.stride(0),
      .num_rows = rows,
      .m = m,
      .d = d,
      .fn = p.fn.as<const float>(),
      .coefficients = coefficients,
      .segments = segments,
      .partial = context.workspace->take<float>(int64_t{rows} * segments * (coefficients + 1)),
      .pre_prev = p.pre_prev.as<const float>(),
      .pre_prev_stride = p.pre_prev.stride(0),
      .norm = plain(p.norm),
      .eps = p.eps,
      .x = p.x.as<BFloat16>(),
      .x_stride = p.x.stride(0)};
  const dim3 grid(static_cast<unsigned>(segments + kRows),
                  static_cast<unsigned>((rows + kRows - 1) / kRows));
  const int groups = (coefficients + kGroup - 1) / kGroup;
  const size_t shared =
      static_cast<size_t>(kThreads / kWarp * (groups * kWarp + kRows)) * sizeof(float);
  const bool vectors = reads_vectors(d, {&p.streams, &p.x, &p.fn});
  const auto kernel = vectors ? site_product_kernel<true> : site_product_kernel<false>;
  kernel<<<grid, kThreads, shared, context.stream>>>(product);
  DEEPINFER_CUDA_LAUNCHED("site_begin");

  const CoefficientArgs mix{.partial = product.partial,
                            .num_rows = rows,
                            .m = m,
                            .columns = m * d,
                            .coefficients = coefficients,
                            .segments = segments,
                            .base = p.base.as<const float>(),
                            .scale = p.scale.as<const float>(),
                            .eps = p.eps,
                            .hc_eps = p.hc_eps,
                            .iterations = p.sinkhorn_iterations,
                            .pre = p.pre.as<float>(),
                            .post = p.post.as<float>(),
                            .comb = p.comb.as<float>(),
                            .pre_stride = p.pre.stride(0),
                            .post_stride = p.post.stride(0),
                            .comb_stride = p.comb.stride(0)};
  site_coefficients_kernel<<<
      static_cast<unsigned>((rows + kMixRows - 1) / kMixRows), kMixRows * kWarp,
      static_cast<size_t>(kMixRows * (coefficients + 1)) * sizeof(float), context.stream>>>(mix);
  DEEPINFER_CUDA_LAUNCHED("the coefficients of site_begin");
}

}  // namespace deepinfer::cuda
