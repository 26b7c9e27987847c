#include "ops/reference/sample_filter.h"

#include <algorithm>
#include <cmath>

namespace deepinfer::ops::reference {
namespace {

uint64_t mass(const Candidate& c) {
  return static_cast<uint64_t>(static_cast<double>(c.share) * 0x1p32);
}

/// Keeps the candidates before which less than top_p of the mass lies: halves the range in which
/// the last one must be.
void keep_nucleus(std::vector<Candidate>& candidates, float top_p) {
  uint64_t total = 0;
  for (const Candidate& c : candidates) total += mass(c);
  const double limit = static_cast<double>(top_p) * static_cast<double>(total);
  // All of the mass lies before those that have none.
  std::erase_if(candidates, [](const Candidate& c) { return mass(c) == 0; });
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
  candidates.resize(static_cast<size_t>(end));
}

}  // namespace

// What a filter keeps is always a beginning of the order, so none needs the order
// itself.
void filter_candidates(const SampleRow& row, std::vector<Candidate>& candidates) {
  const auto k = static_cast<size_t>(row.top_k);
  if (k > 0 && k < candidates.size()) {
    std::ranges::nth_element(candidates, candidates.begin() + row.top_k, ranks_before);
    candidates.resize(k);
  }
  if (row.top_p >= 1 && row.min_p <= 0) return;
  const float first = std::ranges::min_element(candidates, ranks_before)->logit;
  const float z_first = first / row.temperature;
  for (Candidate& c : candidates) {
    const float z = c.logit / row.temperature;
    const float below = z == z_first ? 0 : z - z_first;  // ∞ - ∞ would be NaN
    c.share = static_cast<float>(std::exp(static_cast<double>(below)));
  }
  if (row.top_p < 1) keep_nucleus(candidates, row.top_p);
  std::erase_if(candidates, [&](const Candidate& c) { return c.share < row.min_p; });
}

}  // namespace deepinfer::ops::reference
