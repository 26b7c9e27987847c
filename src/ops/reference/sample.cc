#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/noise.h"
#include "ops/reference/reference.h"
#include "ops/reference/sample_filter.h"

namespace deepinfer::ops::reference {
namespace {

constexpr float kOut = -std::numeric_limits<float>::infinity();

float clean(float logit) {
  return std::isnan(logit) ? kOut : logit;
}

/// log p of the tokens of one row.
class LogSoftmax {
 public:
  explicit LogSoftmax(std::span<const float> logits) {
    for (const float logit : logits) max_ = std::max(max_, clean(logit));
    double sum = 0;
    for (const float logit : logits) sum += std::exp(below_max(logit));
    log_sum_ = std::log(sum);
  }
  float operator()(float logit) const { return static_cast<float>(below_max(logit) - log_sum_); }

 private:
  /// Equal ones first: ∞ - ∞ would be NaN.
  double below_max(float logit) const {
    const float x = clean(logit);
    return x == max_ ? 0 : static_cast<double>(x) - static_cast<double>(max_);
  }

  float max_ = kOut;
  double log_sum_ = 0;
};

/// Repetition, then frequency, then presence; `seen` is the token's word of SampleParams::counts.
float penalize(const SampleRow& row, uint32_t seen, float logit) {
  if (seen == 0) return logit;
  const uint32_t count = seen & 0x7FFFFFFFU;
  logit = logit > 0 ? logit / row.repetition_penalty : logit * row.repetition_penalty;
  const float frequency = row.frequency_penalty * static_cast<float>(count);
  const float presence = count > 0 ? row.presence_penalty : 0;
  return logit - frequency - presence;
}

/// The operation on one row. Threads have one each and keep its memory from row to row.
class Sampler {
 public:
  explicit Sampler(const SampleParams& params) : p_(params) {}

  void run(int64_t i) {
    i_ = i;
    const int64_t vocab = p_.logits.dim(1);
    const std::span logits(p_.logits.row<const float>(i), static_cast<size_t>(vocab));
    const SampleRow& row = p_.rows[static_cast<size_t>(i)];
    const int32_t token = row.forced_token >= 0 ? row.forced_token : choose(row, logits);
    const LogSoftmax log_softmax(logits);
    *p_.token.row<int32_t>(i) = token;
    *p_.logprob.row<float>(i) = log_softmax(logits[static_cast<size_t>(token)]);
    if (!p_.top_tokens.empty()) report_top(logits, log_softmax);
  }

 private:
  bool is_allowed(const SampleRow& row, int32_t id) const {
    if (id == row.banned_token) return false;
    if (p_.mask.empty()) return true;
    const auto word = static_cast<uint32_t>(p_.mask.row<const int32_t>(i_)[id / 32]);
    return ((word >> (id % 32)) & 1U) != 0;
  }

  int32_t choose(const SampleRow& row, std::span<const float> logits) {
    collect(row, logits);
    if (candidates_.empty()) {
      const auto vocab = static_cast<int32_t>(logits.size());
      int32_t id = 0;
      while (id < vocab && !is_allowed(row, id)) ++id;
      return id < vocab ? id : 0;
    }
    if (row.temperature == 0) return std::ranges::min_element(candidates_, ranks_before)->id;
    filter_candidates(row, candidates_);
    return draw(row);
  }

  /// Candidates, by ascending id: penalties, bias and masks (item 13).
  void collect(const SampleRow& row, std::span<const float> logits) {
    const int32_t* counts =
        has_penalty(row) ? p_.counts.row<const int32_t>(*p_.slot.row<const int32_t>(i_)) : nullptr;
    const float* bias = p_.bias.empty() ? nullptr : p_.bias.row<const float>(i_);
    candidates_.clear();
    for (size_t v = 0; v < logits.size(); ++v) {
      const auto id = static_cast<int32_t>(v);
      float logit = clean(logits[v]);
      if (counts != nullptr) logit = penalize(row, static_cast<uint32_t>(counts[v]), logit);
      // A bias of -∞ on a logit of ∞ makes a NaN.
      if (bias != nullptr) logit = clean(logit + bias[v]);
      if (logit != kOut && is_allowed(row, id)) candidates_.push_back({logit, id});
    }
  }

  /// Item 14: argmax of logit/T - log E.
  int32_t draw(const SampleRow& row) const {
    NoiseWords words(row.seed, *p_.position.row<const int64_t>(i_) + 1);
    double best = -std::numeric_limits<double>::infinity();
    int32_t best_id = -1;
    const auto consider = [&](const Candidate& c) {
      const double z = c.logit / row.temperature;
      // No noise can lift it: the costly logarithms are for the few that could win.
      if (z + kMaxGumbelNoise < best) return;
      const double score = z + gumbel_noise(words(c.id));
      if (best_id < 0 || score > best || (score == best && c.id < best_id)) {
        best = score;
        best_id = c.id;
      }
    };
    consider(*std::ranges::min_element(candidates_, ranks_before));
    for (const Candidate& c : candidates_) consider(c);
    return best_id;
  }

  void report_top(std::span<const float> logits, const LogSoftmax& log_softmax) {
    const auto wanted = static_cast<size_t>(p_.top_tokens.dim(1));
    candidates_.clear();
    for (size_t v = 0; v < logits.size(); ++v) {
      const Candidate c{clean(logits[v]), static_cast<int32_t>(v)};
      if (candidates_.size() == wanted) {
        if (wanted == 0 || !ranks_before(c, candidates_.back())) continue;
        candidates_.pop_back();
      }
      candidates_.insert(std::ranges::upper_bound(candidates_, c, ranks_before), c);
    }
    for (size_t t = 0; t < wanted; ++t) {
      const bool found = t < candidates_.size();
      p_.top_tokens.row<int32_t>(i_)[t] = found ? candidates_[t].id : -1;
      p_.top_logprobs.row<float>(i_)[t] = found ? log_softmax(candidates_[t].logit) : kOut;
    }
  }

  const SampleParams& p_;
  int64_t i_ = 0;
  std::vector<Candidate> candidates_;
};

}  // namespace

void sample(const Context& context, const SampleParams& p) {
  context.pool->parallel_for(p.logits.dim(0), 1, [&](int64_t begin, int64_t end) {
    Sampler sampler(p);
    for (int64_t i = begin; i < end; ++i) sampler.run(i);
  });
}

}  // namespace deepinfer::ops::reference
