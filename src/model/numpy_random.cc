#include "model/numpy_random.h"

#include <array>
#include <bit>
#include <cstddef>

namespace deepinfer::model {
namespace {

using Uint128 = unsigned __int128;

constexpr Uint128 kPcgMultiplier = (Uint128{2549297995355413924ULL} << 64) + 4865540595714422341ULL;

/// NumPy's SeedSequence with a pool of four words: spreads a 32-bit seed over eight output words.
std::array<uint32_t, 8> seed_words(uint32_t seed) {
  constexpr size_t kPool = 4;
  uint32_t hash = 0x43b0d7e5;
  const auto hash_mix = [&hash](uint32_t value) {
    value ^= hash;
    hash *= 0x931e8875;
    value *= hash;
    return value ^ (value >> 16);
  };
  const auto mix = [](uint32_t x, uint32_t y) {
    const uint32_t result = 0xca01f9dd * x - 0x4973f715 * y;
    return result ^ (result >> 16);
  };

  std::array<uint32_t, kPool> pool{};
  pool[0] = hash_mix(seed);
  for (size_t i = 1; i < kPool; ++i) pool[i] = hash_mix(0);
  for (size_t source = 0; source < kPool; ++source) {
    for (size_t target = 0; target < kPool; ++target) {
      if (source != target) pool[target] = mix(pool[target], hash_mix(pool[source]));
    }
  }

  std::array<uint32_t, 8> words{};
  uint32_t out_hash = 0x8b51f9dd;
  for (size_t i = 0; i < words.size(); ++i) {
    uint32_t value = pool[i % kPool] ^ out_hash;
    out_hash *= 0x58f38ded;
    value *= out_hash;
    words[i] = value ^ (value >> 16);
  }
  return words;
}

}  // namespace

NumpyRandom::NumpyRandom(uint32_t seed) {
  const std::array<uint32_t, 8> words = seed_words(seed);
  const auto word64 = [&](size_t i) {
    return uint64_t{words[2 * i]} | uint64_t{words[2 * i + 1]} << 32;
  };
  const Uint128 initial_state = (Uint128{word64(0)} << 64) | word64(1);
  const Uint128 initial_sequence = (Uint128{word64(2)} << 64) | word64(3);
  increment_ = (initial_sequence << 1) | 1;
  state_ = (increment_ + initial_state) * kPcgMultiplier + increment_;
}

uint64_t NumpyRandom::next() {
  state_ = state_ * kPcgMultiplier + increment_;
  const auto folded = static_cast<uint64_t>(state_ >> 64) ^ static_cast<uint64_t>(state_);
  return std::rotr(folded, static_cast<int>(state_ >> 122));
}

uint64_t NumpyRandom::below(uint64_t bound) {
  Uint128 product = Uint128{next()} * bound;
  const uint64_t threshold = (0 - bound) % bound;
  while (static_cast<uint64_t>(product) < threshold) product = Uint128{next()} * bound;
  return static_cast<uint64_t>(product >> 64);
}

}  // namespace deepinfer::model
