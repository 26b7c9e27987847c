#pragma once

#include <array>
#include <cmath>
#include <cstdint>

#include "base/philox.h"

/// The noise that draws tokens: a pure function of seed, position and token id (spec/model.md §10
/// item 14).
namespace deepinfer::ops {

/// No value of gumbel_noise() is above this: the smallest word gives 33·ln 2 = 22.87.
inline constexpr double kMaxGumbelNoise = 23;

/// -log E of one word.
inline double gumbel_noise(uint32_t word) {
  const double v = (static_cast<double>(word) + 0.5) * 0x1p-32;
  return -std::log(-std::log1p(-v));
}

/// The words of all token ids at one position. Ids of one group of four share a Philox call, so
/// asking in ascending order is cheapest.
class NoiseWords {
 public:
  /// `position`: index in the sequence of the token to be drawn. Stream 0 draws tokens.
  NoiseWords(uint64_t seed, int64_t position, uint32_t stream = 0)
      : key_{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)},
        position_(static_cast<uint64_t>(position)),
        stream_(stream),
        words_(words_of(0)) {}

  /// `token` >= 0.
  uint32_t operator()(int32_t token) {
    const auto id = static_cast<uint32_t>(token);
    if (id / 4 != group_) {
      group_ = id / 4;
      words_ = words_of(group_);
    }
    return words_[id % 4];
  }

 private:
  std::array<uint32_t, 4> words_of(uint32_t group) const {
    return philox4x32(
        {group, static_cast<uint32_t>(position_), stream_, static_cast<uint32_t>(position_ >> 32)},
        key_);
  }

  std::array<uint32_t, 2> key_;
  uint64_t position_;
  uint32_t stream_;
  uint32_t group_ = 0;
  std::array<uint32_t, 4> words_;
};

}  // namespace deepinfer::ops
