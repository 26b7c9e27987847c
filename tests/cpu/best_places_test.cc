#include "cpu/best_places.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <vector>

namespace deepinfer::cpu {
namespace {

/// The definition: a full sort, ties to the lowest place.
std::vector<int32_t> best_of(const std::vector<float>& scores, int64_t count) {
  std::vector<int32_t> places(scores.size());
  std::iota(places.begin(), places.end(), 0);
  std::ranges::stable_sort(places, [&](int32_t a, int32_t b) {
    return scores[static_cast<size_t>(a)] > scores[static_cast<size_t>(b)];
  });
  places.resize(std::min(places.size(), static_cast<size_t>(count)));
  std::ranges::sort(places);
  return places;
}

TEST(BestPlaces, EqualsASortWithManyTies) {
  constexpr uint64_t kSeed = 5;
  SCOPED_TRACE(::testing::Message() << "seed " << kSeed);
  std::mt19937_64 random(kSeed);
  for (const int64_t size : {0, 1, 2, 16, 127, 128, 129, 1000}) {
    for (const int64_t capacity : {0, 1, 7, 128, 2000}) {
      std::vector<float> scores;
      for (int64_t i = 0; i < size; ++i) {
        const auto value = static_cast<float>(random() % 9) - 4;
        scores.push_back(random() % 5 == 0 ? -0.0F : value);
        if (random() % 7 == 0) scores.back() = -std::numeric_limits<float>::infinity();
      }
      std::vector<BestPlaces::Offer> memory(static_cast<size_t>(BestPlaces::memory(capacity)));
      BestPlaces best(memory.data(), capacity);
      for (int64_t i = 0; i < size; ++i) best.offer(scores[static_cast<size_t>(i)], i);
      std::vector<int32_t> places(static_cast<size_t>(capacity));
      places.resize(static_cast<size_t>(best.places(places.data())));
      EXPECT_EQ(places, best_of(scores, capacity)) << size << " scores, " << capacity << " kept";
    }
  }
}

}  // namespace
}  // namespace deepinfer::cpu
