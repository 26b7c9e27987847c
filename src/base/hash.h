#pragma once

#define XXH_INLINE_ALL  // no shared library travels with the program
#include <xxhash.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace deepinfer {

/// XXH3 of bytes: the hash of everything that is looked up and then verified; not for adversarial
/// secrets.
inline uint64_t hash64(std::span<const std::byte> bytes, uint64_t seed = 0) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

struct Hash128 {
  uint64_t low = 0;
  uint64_t high = 0;
  bool operator==(const Hash128&) const = default;
};

/// XXH3 of bytes in 128 bits; the same promise. `seed` chains it: a hash of everything so far.
inline Hash128 hash128(std::span<const std::byte> bytes, const Hash128& seed = {}) {
  // Two words of seed: one goes in as XXH3's own, the other over the result of the first pass.
  const XXH128_hash_t first = XXH3_128bits_withSeed(bytes.data(), bytes.size(), seed.low);
  const std::array<uint64_t, 3> joined = {first.low64, first.high64, seed.high};
  const XXH128_hash_t hash = XXH3_128bits_withSeed(joined.data(), sizeof(joined), seed.low);
  return {hash.low64, hash.high64};
}

}  // namespace deepinfer
