#pragma once

#include <cstdint>
#include <span>

#include "ops/sample.h"

namespace deepinfer::ops {

/// A token that may be drawn.
struct Candidate {
  float logit;  // after penalties, bias and masks; above -∞
  int32_t id;
  float share = 0;  // e of spec/model.md §10 item 15: probability relative to the first's
};

/// Item 15's order: the likeliest first, ties to the lowest id.
inline bool ranks_before(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

/// Moves what top-k, top-p and min-p keep to the front, in no particular order, and returns it:
/// spec/model.md §10 item 15 for a temperature above 0. Linear time on average: nothing is sorted
/// and nothing allocated. `candidates` has at least one and keeps at least one. `exp` gives e^x for
/// x <= 0.
std::span<Candidate> filter_candidates(const SampleRow& row, std::span<Candidate> candidates,
                                       double (*exp)(double x));

}  // namespace deepinfer::ops
