#include <algorithm>
#include <cmath>
#include <numeric>

#include "ops/reference/reference.h"

namespace deepinfer::ops::reference {
namespace {

/// log1p(exp(v)), v itself for v > 20.
float softplus(float v) {
  return v > 20 ? v : std::log1p(std::exp(v));
}

/// Gate logits to scores, in place.
void score(Scoring scoring, std::span<float> v) {
  switch (scoring) {
    case Scoring::kSqrtSoftplus:
      for (float& s : v) s = std::sqrt(softplus(s));
      return;
    case Scoring::kSigmoid:
      for (float& s : v) s = sigmoid(s);
      return;
    case Scoring::kSoftmax: {
      const float largest = *std::ranges::max_element(v);
      float sum = 0;
      for (float& s : v) sum += s = std::exp(s - largest);
      for (float& s : v) s /= sum;
      return;
    }
  }
}

/// The k best of scores + bias, best first, ties to the lowest id. Picks k different ids even if
/// scores are NaN.
void choose(std::span<const float> scores, const float* bias, std::span<int32_t> chosen) {
  std::vector<float> steered(scores.begin(), scores.end());
  for (size_t e = 0; e < steered.size(); ++e) steered[e] += bias[e];
  std::vector<bool> taken(steered.size());
  for (int32_t& choice : chosen) {
    choice = -1;
    for (size_t e = 0; e < steered.size(); ++e) {
      if (taken[e]) continue;
      if (choice < 0 || steered[e] > steered[static_cast<size_t>(choice)]) {
        choice = static_cast<int32_t>(e);
      }
    }
    taken[static_cast<size_t>(choice)] = true;
  }
}

void weigh(const RouteParams& p, std::span<const float> scores, std::span<const int32_t> chosen,
           float* weights) {
  float sum = 0;
  for (size_t i = 0; i < chosen.size(); ++i) {
    weights[i] = scores[static_cast<size_t>(chosen[i])];
    sum += weights[i];
  }
  for (size_t i = 0; i < chosen.size(); ++i) {
    if (p.normalize && chosen.size() > 1) weights[i] /= sum + 1e-20F;
    weights[i] *= p.scaling;
  }
}

/// One SwiGLU network on `num_rows` rows: out = (w · (silu(a) · b) → act) · w2. `weights` has one
/// routing weight per row.
std::vector<float> feed_forward(const Context& context, const ExpertWeights& expert, float limit,
                                std::span<const float> x, std::span<const float> weights) {
  const auto num_rows = static_cast<int64_t>(weights.size());
  const auto width = static_cast<size_t>(expert.w1.rows());
  std::vector<float> a(weights.size() * width);
  std::vector<float> b(weights.size() * width);
  linear(context, expert.w1, x, num_rows, a, InputRounding::kFp8, ResultRounding::kAct);
  linear(context, expert.w3, x, num_rows, b, InputRounding::kFp8, ResultRounding::kAct);
  for (size_t i = 0; i < a.size(); ++i) {
    if (limit > 0) {
      a[i] = std::min(a[i], limit);
      b[i] = std::clamp(b[i], -limit, limit);
    }
    const float silu = a[i] * sigmoid(a[i]);
    a[i] = context.act(weights[i / width] * (silu * b[i]));
  }
  std::vector<float> out(weights.size() * static_cast<size_t>(expert.w2.rows()));
  linear(context, expert.w2, a, num_rows, out, InputRounding::kFp8, ResultRounding::kAct);
  return out;
}

}  // namespace

void route(const Context& context, const RouteParams& p) {
  const int64_t rows = p.x.dim(0);
  const auto num_experts = static_cast<size_t>(p.gate.dim(0));
  std::vector<float> scores(static_cast<size_t>(rows) * num_experts);
  linear(context, {.weight = p.gate, .scale = {}}, load_rows(p.x), rows, scores,
         InputRounding::kNone, ResultRounding::kNone);
  for (int64_t b = 0; b < rows; ++b) {
    const std::span<float> row = row_of(scores, b, num_experts);
    for (float& s : row) s /= p.temperature;
    score(p.scoring, row);
    const std::span<int32_t> chosen(p.experts.row<int32_t>(b),
                                    static_cast<size_t>(p.experts.dim(1)));
    choose(row, p.bias.as<const float>(), chosen);
    weigh(p, row, chosen, p.weights.row<float>(b));
    if (!p.trace_scores.empty()) store_row(row, p.trace_scores, b);
  }
}

void experts(const Context& context, const ExpertsParams& p) {
  const int64_t rows = p.x.dim(0);
  const int64_t choices = p.experts.dim(1);
  const auto d = static_cast<size_t>(p.x.dim(1));
  const std::vector<float> x = load_rows(p.x);

  struct Slot {
    int64_t row;
    int64_t choice;
  };
  std::vector<std::vector<Slot>> slots(p.routed.size());  // who wants which expert
  for (int64_t b = 0; b < rows; ++b) {
    for (int64_t i = 0; i < choices; ++i) {
      const auto expert = static_cast<size_t>(p.experts.row<const int32_t>(b)[i]);
      DEEPINFER_CHECK(expert < slots.size(), "experts: expert {} of {}", expert, slots.size());
      slots[expert].push_back({b, i});
    }
  }
  for (size_t e = 0; e < slots.size(); ++e) {
    if (slots[e].empty()) continue;
    std::vector<float> inputs;
    std::vector<float> weights;
    for (const auto& [row, choice] : slots[e]) {
      const auto* input = x.data() + static_cast<size_t>(row) * d;
      inputs.insert(inputs.end(), input, input + d);
      weights.push_back(p.weights.row<const float>(row)[choice]);
    }
    std::vector<float> out = feed_forward(context, p.routed[e], p.limit, inputs, weights);
    for (size_t s = 0; s < slots[e].size(); ++s) {
      store_row(row_of(out, static_cast<int64_t>(s), d), p.slot_rows.at(slots[e][s].row),
                slots[e][s].choice);
    }
  }
  const std::vector<float> ones(static_cast<size_t>(rows), 1.0F);
  store_rows(feed_forward(context, p.shared, p.limit, x, ones), p.shared_rows);
}

void combine(const Context& context, const CombineParams& p) {
  const auto choices = static_cast<size_t>(p.experts.dim(1));
  context.pool->parallel_for(p.y.dim(0), 16, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      const auto* ids = p.experts.row<const int32_t>(b);
      std::vector<int64_t> order(choices);
      std::iota(order.begin(), order.end(), 0);
      std::ranges::sort(order, {}, [&](int64_t i) { return ids[i]; });
      std::vector<float> sum(static_cast<size_t>(p.y.dim(1)));
      const auto add = [&sum](const std::vector<float>& row) {
        for (size_t i = 0; i < sum.size(); ++i) sum[i] += row[i];
      };
      for (const int64_t i : order) add(load_row(p.slot_rows.at(b), i));
      add(load_row(p.shared_rows, b));
      for (float& v : sum) v = context.act(v);
      store_row(sum, p.y, b);
    }
  });
}

}  // namespace deepinfer::ops::reference
