#include "base/error.h"
#include "cuda/device/math.cuh"
#include "cuda/device/reduce.cuh"
#include "cuda/error.h"
#include "cuda/gemm.h"
#include "cuda/ops/ops.h"

namespace deepinfer::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kMaxChoices = 32;

struct RouteView {
  const float* gate;  // [B, E]: x · gateᵀ
  const float* bias;  // [E]
  int num_experts;
  int choices;
  float temperature;
  ops::Scoring scoring;
  bool normalize;
  float scaling;
  int32_t* experts;  // [B, k]
  int64_t experts_stride;
  float* weights;  // [B, k]
  int64_t weights_stride;
  float* trace;  // [B, E] or nullptr
};

/// Softmax over the scores in place, in fp32. Thread t adds experts t, t + kThreads, …
__device__ void softmax(float* scores, int count) {
  __shared__ float of_warp[kThreads / kWarp];
  float largest = -INFINITY;
  for (int e = threadIdx.x; e < count; e += kThreads) largest = fmaxf(largest, scores[e]);
  largest = warp_max(largest);
  if (lane_id() == 0) of_warp[warp_id()] = largest;
  __syncthreads();
  for (const float v : of_warp) largest = fmaxf(largest, v);
  float sum = 0;
  for (int e = threadIdx.x; e < count; e += kThreads)
    sum += scores[e] = exp_f32(scores[e] - largest);
  sum = block_sum<kThreads>(sum);
  for (int e = threadIdx.x; e < count; e += kThreads) scores[e] /= sum;
}

/// The better of two (score, expert) pairs: higher score, then lower expert.
__device__ __forceinline__ void take_better(float& score, int& expert, float other, int number) {
  if (other > score || (other == score && number < expert)) {
    score = other;
    expert = number;
  }
}

/// A block per row: scores, then k times the best of score + bias that is left.
__global__ void route_kernel(const RouteView v) {
  extern __shared__ float scores[];         // [E]
  float* steered = scores + v.num_experts;  // [E]: score + bias; -∞ once taken
  __shared__ float best_score[kThreads / kWarp];
  __shared__ int best_expert[kThreads / kWarp];
  __shared__ int chosen[kMaxChoices];
  const int64_t b = blockIdx.x;
  for (int e = threadIdx.x; e < v.num_experts; e += kThreads) {
    const float logit = v.gate[b * v.num_experts + e] / v.temperature;
    scores[e] = v.scoring == ops::Scoring::kSqrtSoftplus ? sqrtf(softplus_f32(logit))
                : v.scoring == ops::Scoring::kSigmoid    ? sigmoid_f32(logit)
                                                         : logit;
  }
  __syncthreads();
  if (v.scoring == ops::Scoring::kSoftmax) softmax(scores, v.num_experts);
  __syncthreads();
  for (int e = threadIdx.x; e < v.num_experts; e += kThreads) {
    // NaN has no place in the order: it comes last. Infinity is kept below "taken".
    const float s = scores[e] + v.bias[e];
    steered[e] = isnan(s) ? -INFINITY : s;
    if (v.trace != nullptr) v.trace[b * v.num_experts + e] = scores[e];
  }
  __syncthreads();
  for (int i = 0; i < v.choices; ++i) {
    float score = -INFINITY;
    int expert = v.num_experts;  // none
    for (int e = threadIdx.x; e < v.num_experts; e += kThreads) {
      bool is_taken = false;
      for (int c = 0; c < i; ++c) is_taken |= chosen[c] == e;
      if (!is_taken) take_better(score, expert, steered[e], e);
    }
#pragma unroll
    for (int offset = kWarp / 2; offset > 0; offset /= 2) {
      const float other = __shfl_xor_sync(kAllLanes, score, offset);
      const int number = __shfl_xor_sync(kAllLanes, expert, offset);
      take_better(score, expert, other, number);
    }
    if (lane_id() == 0) {
      best_score[warp_id()] = score;
      best_expert[warp_id()] = expert;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      for (int w = 1; w < kThreads / kWarp; ++w) {
        take_better(score, expert, best_score[w], best_expert[w]);
      }
      chosen[i] = expert;
    }
    __syncthreads();
  }
  if (threadIdx.x != 0) return;
  float sum = 0;
  for (int i = 0; i < v.choices; ++i) sum += scores[chosen[i]];
  for (int i = 0; i < v.choices; ++i) {
    float weight = scores[chosen[i]];
    if (v.normalize && v.choices > 1) weight /= sum + 1e-20F;
    v.experts[b * v.experts_stride + i] = chosen[i];
    v.weights[b * v.weights_stride + i] = weight * v.scaling;
  }
}

}  // namespace

void route(const ops::RouteParams& p, Context& context) {
  const int64_t rows = p.x.dim(0);
  if (rows == 0) return;
  const int64_t num_experts = p.gate.dim(0);
  const int64_t choices = p.experts.dim(1);
  DEEPINFER_CHECK(choices <= kMaxChoices && num_experts <= 4096,
                  "route: {} of {} experts, expected at most {} of 4096", choices, num_experts,
                  kMaxChoices);
  const TensorView gate(context.workspace->take<float>(rows * num_experts), DType::kF32,
                        {rows, num_experts});
  linear({.weight = p.gate, .scale = {}}, p.x, InputRounding::kNone, gate, context);
  const RouteView view{.gate = gate.as<const float>(),
                       .bias = p.bias.as<const float>(),
                       .num_experts = static_cast<int>(num_experts),
                       .choices = static_cast<int>(choices),
                       .temperature = p.temperature,
                       .scoring = p.scoring,
                       .normalize = p.normalize,
                       .scaling = p.scaling,
                       .experts = p.experts.as<int32_t>(),
                       .experts_stride = p.experts.stride(0),
                       .weights = p.weights.as<float>(),
                       .weights_stride = p.weights.stride(0),
                       .trace = p.trace_scores.empty() ? nullptr : p.trace_scores.as<float>()};
  route_kernel<<<static_cast<unsigned>(rows), kThreads,
                 static_cast<size_t>(2 * num_experts) * sizeof(float), context.stream>>>(view);
  DEEPINFER_CUDA_LAUNCHED("route");
}

}  // namespace deepinfer::cuda
