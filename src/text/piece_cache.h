#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace deepinfer::text {

/// The ids of recently seen short pieces of text: a direct-mapped table of fixed size, where a new
/// piece takes the place of the old one. Used by one thread at a time.
class PieceCache {
 public:
  static constexpr size_t kMaxBytes = 24;
  static constexpr size_t kMaxIds = 9;

  /// A piece's bytes padded with zeros, and its place.
  struct Key {
    std::array<uint64_t, 3> words;
    uint8_t size;
    size_t slot;
  };

  /// `num_slots` is a power of two, or 0 for a cache that remembers nothing.
  explicit PieceCache(size_t num_slots)
      : slots_(num_slots), shift_(num_slots == 0 ? 0 : 64 - std::countr_zero(num_slots)) {}

  bool accepts(std::string_view piece) const {
    return piece.size() <= kMaxBytes && !slots_.empty();
  }

  /// The key of a piece that the cache accepts.
  Key key(std::string_view piece) const {
    Key key{{}, static_cast<uint8_t>(piece.size()), 0};
    std::memcpy(key.words.data(), piece.data(), piece.size());
    // Odd constants of the golden ratio, the square roots of 2 and 3: any mixing multipliers do.
    uint64_t mixed = key.words[0] * 0x9E3779B97F4A7C15 ^
                     std::rotl(key.words[1] * 0x6A09E667F3BCC909, 23) ^
                     std::rotl(key.words[2] * 0xBB67AE8584CAA73B, 41);
    mixed = (mixed ^ (mixed >> 29) ^ key.size) * 0xD1B54A32D192ED03;
    key.slot = shift_ == 64 ? 0 : mixed >> shift_;
    return key;
  }

  /// The ids of a piece, valid until the next store(); empty if they are not known.
  std::span<const int32_t> find(const Key& key) const {
    const Slot& slot = slots_[key.slot];
    if (slot.size != key.size || slot.words != key.words) return {};
    return {slot.ids.data(), slot.num_ids};
  }

  /// Remembers the ids of a piece, if they are few enough.
  void store(const Key& key, std::span<const int32_t> ids) {
    if (ids.size() > kMaxIds) return;
    Slot& slot = slots_[key.slot];
    slot.words = key.words;
    slot.size = key.size;
    slot.num_ids = static_cast<uint8_t>(ids.size());
    std::memcpy(slot.ids.data(), ids.data(), ids.size_bytes());
  }

 private:
  struct alignas(64) Slot {
    std::array<uint64_t, 3> words;
    std::array<int32_t, kMaxIds> ids;
    uint8_t size;  // 0: empty, since no piece is
    uint8_t num_ids;
  };
  static_assert(sizeof(Slot) == 64);

  std::vector<Slot> slots_;
  int shift_;
};

}  // namespace deepinfer::text
