#include "cache/ring_image.h"

#include <algorithm>

#include "base/error.h"
#include "tensor/quantize.h"

namespace deepinfer::cache {
namespace {

/// Calls `move(unit offset, image offset, bytes)` for the codes and the scales of every row.
template <typename Move>
void for_each_part(const CacheShape& shape, int64_t position, int64_t num_layers, Move move) {
  const int64_t rows = shape.ring_rows();
  const int64_t codes = shape.head_dim;
  const int64_t scales = shape.head_dim / kFp8Block;
  const int64_t all_codes = shape.snapshot_unit_layers() * rows * codes;
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    for (int64_t i = 0; i < shape.window; ++i) {
      const int64_t t = position - shape.window + i;
      if (t < 0) continue;
      const int64_t row = layer * rows + t % rows;
      const int64_t to = (layer * shape.window + i) * (codes + scales);
      move(row * codes, to, codes);
      move(all_codes + row * scales, to + codes, scales);
    }
  }
}

}  // namespace

int64_t ring_image_bytes(const CacheShape& shape, int64_t num_layers) {
  return num_layers * shape.window * window_key_bytes(shape.head_dim);
}

std::vector<std::byte> ring_image(const CacheShape& shape, std::span<const std::byte> unit,
                                  int64_t position, int64_t num_layers) {
  std::vector<std::byte> image(static_cast<size_t>(ring_image_bytes(shape, num_layers)));
  for_each_part(shape, position, num_layers, [&](int64_t from, int64_t to, int64_t bytes) {
    std::copy_n(unit.begin() + from, bytes, image.begin() + to);
  });
  return image;
}

std::vector<std::byte> unit_of_ring_image(const CacheShape& shape, std::span<const std::byte> image,
                                          int64_t position, int64_t num_layers) {
  DEEPINFER_CHECK(static_cast<int64_t>(image.size()) == ring_image_bytes(shape, num_layers),
                  "a ring image of {} bytes", image.size());
  std::vector<std::byte> unit(static_cast<size_t>(shape.snapshot_unit_bytes()));
  for_each_part(shape, position, num_layers, [&](int64_t to, int64_t from, int64_t bytes) {
    std::copy_n(image.begin() + from, bytes, unit.begin() + to);
  });
  return unit;
}

}  // namespace deepinfer::cache
