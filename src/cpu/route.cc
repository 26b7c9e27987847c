#include <algorithm>

#include "cpu/linear.h"
#include "cpu/operations.h"

namespace deepinfer::cpu {
namespace {

void score(const Context& context, const ops::RouteParams& p, float* v) {
  const ExpertKernels& kernels = context.kernels.experts;
  const int64_t n = p.gate.dim(0);
  switch (p.scoring) {
    case ops::Scoring::kSqrtSoftplus:
      return kernels.sqrt_softplus(v, n, p.temperature);
    case ops::Scoring::kSigmoid:
      return kernels.sigmoid(v, n, p.temperature);
    case ops::Scoring::kSoftmax:
      return kernels.softmax(v, n, p.temperature);
  }
}

/// The k best of `steered`, best first, ties to the lowest id. Picks k different ids even if scores
/// are NaN. Overwrites what it has taken.
void choose(float* steered, uint8_t* taken, int64_t num_experts, int32_t* chosen, int64_t k) {
  std::fill_n(taken, num_experts, uint8_t{0});
  for (int64_t i = 0; i < k; ++i) {
    int64_t best = -1;
    for (int64_t e = 0; e < num_experts; ++e) {
      if (taken[e] == 0 && (best < 0 || steered[e] > steered[best])) best = e;
    }
    taken[best] = 1;
    chosen[i] = static_cast<int32_t>(best);
  }
}

void weigh(const ops::RouteParams& p, const float* scores, const int32_t* chosen, float* weights) {
  const int64_t k = p.experts.dim(1);
  float sum = 0;
  for (int64_t i = 0; i < k; ++i) {
    weights[i] = scores[chosen[i]];
    sum += weights[i];
  }
  for (int64_t i = 0; i < k; ++i) {
    if (p.normalize && k > 1) weights[i] /= sum + 1e-20F;
    weights[i] *= p.scaling;
  }
}

}  // namespace

void route(const Context& context, const ops::RouteParams& p) {
  const int64_t rows = p.x.dim(0);
  const int64_t num_experts = p.gate.dim(0);
  const int64_t k = p.experts.dim(1);
  const TensorView scores(context.workspace.shared().take<float>(rows * num_experts), DType::kF32,
                          {rows, num_experts});
  linear(context, {.weight = {.weight = p.gate, .scale = {}},
                   .x = p.x,
                   .y = scores,
                   .rounding = InputRounding::kNone});
  const auto* bias = p.bias.as<const float>();
  context.parallel_for(rows, 8, [&](int64_t begin, int64_t end) {
    Arena& own = context.workspace.own(ThreadPool::thread_index());
    own.reset();
    auto* steered = own.take<float>(num_experts);
    auto* taken = own.take<uint8_t>(num_experts);
    for (int64_t b = begin; b < end; ++b) {
      auto* row = scores.row<float>(b);
      score(context, p, row);
      if (!p.trace_scores.empty()) std::copy_n(row, num_experts, p.trace_scores.row<float>(b));
      for (int64_t e = 0; e < num_experts; ++e) steered[e] = row[e] + bias[e];
      auto* chosen = p.experts.row<int32_t>(b);
      choose(steered, taken, num_experts, chosen, k);
      weigh(p, row, chosen, p.weights.row<float>(b));
    }
  });
}

}  // namespace deepinfer::cpu
