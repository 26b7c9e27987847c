#pragma once

#define XXH_INLINE_ALL  // no shared library travels with the program
#include <xxhash.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace deepinfer {

/// XXH3 of bytes: the hash of everything that is looked up and then verified; not for adversarial
/// secrets.
inline uint64_t hash64(std::span<const std::byte> bytes, uint64_t seed = 0) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

}  // namespace deepinfer
