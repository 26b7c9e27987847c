#include "ops/host_sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/noise.h"

namespace deepinfer::ops {
namespace {

constexpr float kOut = -std::numeric_limits<float>::infinity();

float clean(float logit) {
  return std::isnan(logit) ? kOut : logit;
}

/// log p of the tokens of one row.
class LogSoftmax {
 public:
  LogSoftmax(const SampleMath& math, std::span<const float> logits) {
    const auto n = static_cast<int64_t>(logits.size());
    max_ = math.largest(logits.data(), n);
    log_sum_ = math.log_sum_exp(logits.data(), n, max_);
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

/// The operation on one row.
class Sampler {
 public:
  Sampler(const SampleParams& params, int64_t i, const SampleMath& math,
          std::span<Candidate> memory)
      : p_(params), i_(i), math_(math), memory_(memory) {}

  void run() {
    const int64_t vocab = p_.logits.dim(1);
    const std::span logits(p_.logits.row<const float>(i_), static_cast<size_t>(vocab));
    const SampleRow& row = p_.rows[static_cast<size_t>(i_)];
    const int32_t token = row.forced_token >= 0 ? row.forced_token : choose(row, logits);
    const LogSoftmax log_softmax(math_, logits);
    *p_.token.row<int32_t>(i_) = token;
    *p_.logprob.row<float>(i_) = log_softmax(logits[static_cast<size_t>(token)]);
    if (!p_.top_tokens.empty()) report_top(logits, log_softmax);
  }

 private:
  bool is_allowed(const SampleRow& row, int32_t id) const {
    if (id == row.banned_token) return false;
    if (p_.mask.empty()) return true;
    const auto word = static_cast<uint32_t>(p_.mask.row<const int32_t>(i_)[id / 32]);
    return ((word >> (id % 32)) & 1U) != 0;
  }

  /// Whether the logits are taken as they are, all of them.
  bool is_plain(const SampleRow& row) const {
    return !has_penalty(row) && p_.bias.empty() && p_.mask.empty() && row.banned_token < 0;
  }

  int32_t choose(const SampleRow& row, std::span<const float> logits) {
    if (row.temperature == 0 && is_plain(row)) {
      // Nothing changes the order of the logits.
      const float largest = math_.largest(logits.data(), static_cast<int64_t>(logits.size()));
      if (largest != kOut) {
        return static_cast<int32_t>(std::ranges::find(logits, largest) - logits.begin());
      }
    }
    const std::span<Candidate> candidates = collect(row, logits);
    if (candidates.empty()) {
      const auto vocab = static_cast<int32_t>(logits.size());
      int32_t id = 0;
      while (id < vocab && !is_allowed(row, id)) ++id;
      return id < vocab ? id : 0;
    }
    if (row.temperature == 0) return std::ranges::min_element(candidates, ranks_before)->id;
    return draw(row, filter_candidates(row, candidates, math_.exp));
  }

  /// Candidates, by ascending id: penalties, bias and masks (item 13).
  std::span<Candidate> collect(const SampleRow& row, std::span<const float> logits) {
    const int32_t* counts =
        has_penalty(row) ? p_.counts.row<const int32_t>(*p_.slot.row<const int32_t>(i_)) : nullptr;
    const float* bias = p_.bias.empty() ? nullptr : p_.bias.row<const float>(i_);
    size_t count = 0;
    for (size_t v = 0; v < logits.size(); ++v) {
      const auto id = static_cast<int32_t>(v);
      float logit = clean(logits[v]);
      if (counts != nullptr) logit = penalize(row, static_cast<uint32_t>(counts[v]), logit);
      // A bias of -∞ on a logit of ∞ makes a NaN.
      if (bias != nullptr) logit = clean(logit + bias[v]);
      if (logit != kOut && is_allowed(row, id)) memory_[count++] = {logit, id};
    }
    return memory_.first(count);
  }

  /// Item 14: argmax of logit/T - log E.
  int32_t draw(const SampleRow& row, std::span<const Candidate> candidates) const {
    NoiseWords words(row.seed, *p_.position.row<const int64_t>(i_) + 1);
    double best = -std::numeric_limits<double>::infinity();
    int32_t best_id = -1;
    const auto consider = [&](const Candidate& c) {
      const double z = c.logit / row.temperature;
      // No noise can lift it: the costly logarithms are for the few that could win.
      if (z + kMaxGumbelNoise < best) return;
      const double score = z + math_.gumbel_noise(words(c.id));
      if (best_id < 0 || score > best || (score == best && c.id < best_id)) {
        best = score;
        best_id = c.id;
      }
    };
    consider(*std::ranges::min_element(candidates, ranks_before));
    for (const Candidate& c : candidates) consider(c);
    return best_id;
  }

  void report_top(std::span<const float> logits, const LogSoftmax& log_softmax) {
    const auto wanted = static_cast<size_t>(p_.top_tokens.dim(1));
    const size_t room = std::min(wanted, logits.size());
    Candidate* const best = memory_.data();  // the best so far, in order
    size_t count = 0;
    for (size_t v = 0; v < logits.size(); ++v) {
      const Candidate c{clean(logits[v]), static_cast<int32_t>(v)};
      if (count == room) {
        if (count == 0 || !ranks_before(c, best[count - 1])) continue;
        --count;
      }
      Candidate* const place = std::upper_bound(best, best + count, c, ranks_before);
      std::move_backward(place, best + count, best + count + 1);
      *place = c;
      ++count;
    }
    for (size_t t = 0; t < wanted; ++t) {
      const bool found = t < count;
      p_.top_tokens.row<int32_t>(i_)[t] = found ? best[t].id : -1;
      p_.top_logprobs.row<float>(i_)[t] = found ? log_softmax(best[t].logit) : kOut;
    }
  }

  const SampleParams& p_;
  int64_t i_;
  const SampleMath& math_;
  std::span<Candidate> memory_;  // [V]
};

}  // namespace

void sample_row_on_host(const SampleParams& params, int64_t i, const SampleMath& math,
                        std::span<Candidate> memory) {
  Sampler(params, i, math, memory).run();
}

}  // namespace deepinfer::ops
