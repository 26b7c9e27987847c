#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>

namespace deepinfer::cpu {

/// The `capacity` highest of scores that are offered by ascending place; of equal scores (-0 and +0
/// are equal) the lowest places. Time is linear in the offers; memory is the caller's. No score may
/// be NaN.
class BestPlaces {
 public:
  struct Offer {
    float score;
    int32_t place;
  };
  /// Offers that must have room for a capacity.
  static constexpr int64_t memory(int64_t capacity) { return 2 * std::max(capacity, int64_t{1}); }

  /// `offers` has room for memory(capacity).
  BestPlaces(Offer* offers, int64_t capacity) : kept_(offers), capacity_(capacity) {}

  /// Only scores above it are worth an offer; -∞ means all, -∞ itself included, until is_full().
  float bound() const { return bound_; }
  bool is_full() const { return is_full_; }

  void offer(float score, int64_t place) {
    // An equal score loses: its place is higher than all before.
    if (is_full_ && score <= bound_) return;
    kept_[count_++] = {score, static_cast<int32_t>(place)};
    if (count_ >= memory(capacity_)) shrink();
  }

  /// Writes the places kept, ascending; returns how many.
  int64_t places(int32_t* out) {
    if (count_ > capacity_) shrink();
    for (int64_t i = 0; i < count_; ++i) out[i] = kept_[i].place;
    std::sort(out, out + count_);
    return count_;
  }

 private:
  static bool is_better(const Offer& a, const Offer& b) {
    return a.score != b.score ? a.score > b.score : a.place < b.place;
  }

  /// Drops all but the best. There are at least `capacity_`.
  void shrink() {
    is_full_ = true;
    bound_ = std::numeric_limits<float>::infinity();
    if (capacity_ > 0) {
      Offer* last = kept_ + capacity_ - 1;
      std::nth_element(kept_, last, kept_ + count_, is_better);
      bound_ = last->score;
    }
    count_ = capacity_;
  }

  Offer* kept_;
  int64_t capacity_;
  int64_t count_ = 0;
  bool is_full_ = false;
  float bound_ = -std::numeric_limits<float>::infinity();
};

}  // namespace deepinfer::cpu
