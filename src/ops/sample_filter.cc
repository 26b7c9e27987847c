#include "ops/sample_filter.h"

#include <algorithm>

namespace deepinfer::ops {
namespace {

uint64_t mass(const Candidate& c) {
  return static_cast<uint64_t>(static_cast<double>(c.share) * 0x1p32);
}

template <typename Predicate>
std::span<Candidate> keep_if(std::span<Candidate> candidates, Predicate keep) {
  const auto end = std::remove_if(candidates.begin(), candidates.end(),
                                  [&](const Candidate& c) { return !keep(c); });
  return candidates.first(static_cast<size_t>(end - candidates.begin()));
}

/// Keeps the candidates before which less than top_p of the mass lies: halves the range in which
/// the last one must be.
std::span<Candidate> keep_nucleus(std::span<Candidate> candidates, float top_p) {
  uint64_t total = 0;
  for (const Candidate& c : candidates) total += mass(c);
  const double limit = static_cast<double>(top_p) * static_cast<double>(total);
  // All of the mass lies before those that have none.
  candidates = keep_if(candidates, [](const Candidate& c) { return mass(c) != 0; });
  // The candidate of rank `begin` is kept, that of rank `end` is not; `before` is the mass of the
  // ranks below `begin`. Ranks below `begin` lie in front of it, those from `end` on behind.
  std::ptrdiff_t begin = 0;
  std::ptrdiff_t end = std::ssize(candidates);
  uint64_t before = 0;
  while (end - begin > 1) {
    const std::ptrdiff_t middle = begin + (end - begin) / 2;
    const auto at = candidates.begin();
    std::nth_element(at + begin, at + middle, at + end, ranks_before);
    uint64_t half = 0;
    for (auto c = at + begin; c != at + middle; ++c) half += mass(*c);
    if (static_cast<double>(before + half) < limit) {
      begin = middle;
      before += half;
    } else {
      end = middle;
    }
  }
  return candidates.first(static_cast<size_t>(end));
}

}  // namespace

// What a filter keeps is always a beginning of the order, so none needs the order
// itself.
std::span<Candidate> filter_candidates(const SampleRow& row, std::span<Candidate> candidates,
                                       double (*exp)(double x)) {
  const auto k = static_cast<size_t>(row.top_k);
  if (k > 0 && k < candidates.size()) {
    std::ranges::nth_element(candidates, candidates.begin() + row.top_k, ranks_before);
    candidates = candidates.first(k);
  }
  if (row.top_p >= 1 && row.min_p <= 0) return candidates;
  const float first = std::ranges::min_element(candidates, ranks_before)->logit;
  const float z_first = first / row.temperature;
  for (Candidate& c : candidates) {
    const float z = c.logit / row.temperature;
    const float below = z == z_first ? 0 : z - z_first;  // ∞ - ∞ would be NaN
    c.share = static_cast<float>(exp(static_cast<double>(below)));
  }
  if (row.top_p < 1) candidates = keep_nucleus(candidates, row.top_p);
  return keep_if(candidates, [&](const Candidate& c) { return !(c.share < row.min_p); });
}

}  // namespace deepinfer::ops
