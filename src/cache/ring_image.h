#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cache/kv_cache.h"

namespace deepinfer::cache {

/// Rings as bytes that do not depend on where a ring begins or how many rows it has: for every
/// layer the W rows before `position` in ascending order, codes and scales of each; zeros for
/// positions below 0. `unit` is what KvCache::read_unit gives.
std::vector<std::byte> ring_image(const CacheShape& shape, std::span<const std::byte> unit,
                                  int64_t position, int64_t num_layers);
int64_t ring_image_bytes(const CacheShape& shape, int64_t num_layers);
/// The way back, for KvCache::write_unit. `image` has ring_image_bytes().
std::vector<std::byte> unit_of_ring_image(const CacheShape& shape, std::span<const std::byte> image,
                                          int64_t position, int64_t num_layers);

}  // namespace deepinfer::cache
