#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace deepinfer {

using Sha256Digest = std::array<std::byte, 32>;

/// SHA-256 (FIPS 180-4): names content so that nobody can make two contents of one name. For keys
/// of what is kept on disk; what is only looked up and then compared takes hash64.
class Sha256 {
 public:
  Sha256& add(std::span<const std::byte> bytes);
  /// The digest of all that was added. Ends the use of this object.
  Sha256Digest finish();

 private:
  void add_block(const std::byte* block);

  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::byte, 64> open_{};  // bytes of a block that is not full
  size_t num_open_ = 0;
  uint64_t num_bytes_ = 0;
};

}  // namespace deepinfer
