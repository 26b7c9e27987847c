#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/host_sampler.h"
#include "ops/noise.h"
#include "ops/reference/reference.h"

namespace deepinfer::ops::reference {
namespace {

constexpr float kOut = -std::numeric_limits<float>::infinity();

float largest(const float* logits, int64_t n) {
  float max = kOut;
  for (int64_t i = 0; i < n; ++i) max = logits[i] > max ? logits[i] : max;  // false for NaN
  return max;
}

double log_sum_exp(const float* logits, int64_t n, float max) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (std::isnan(logits[i])) {
      sum += max == kOut ? 1 : 0;
    } else if (logits[i] == max) {  // ∞ - ∞ would be NaN
      sum += 1;
    } else {
      sum += std::exp(static_cast<double>(logits[i]) - static_cast<double>(max));
    }
  }
  return std::log(sum);
}

}  // namespace

void sample(const Context& context, const SampleParams& p) {
  const SampleMath math{.exp = [](double x) { return std::exp(x); },
                        .gumbel_noise = gumbel_noise,
                        .largest = largest,
                        .log_sum_exp = log_sum_exp};
  context.pool->parallel_for(p.logits.dim(0), 1, [&](int64_t begin, int64_t end) {
    std::vector<Candidate> memory(static_cast<size_t>(p.logits.dim(1)));
    for (int64_t i = begin; i < end; ++i) sample_row_on_host(p, i, math, memory);
  });
}

}  // namespace deepinfer::ops::reference
