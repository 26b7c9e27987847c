#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "base/file.h"
#include "tensor/tensor.h"

namespace deepinfer::checkpoint {

/// Looks at the bytes of a shard without touching the holes of a sparse file and without leaving
/// its pages resident: what opening a checkpoint of hundreds of gigabytes reads must stay small.
class ShardScanner {
 public:
  /// Opens the file for reading. Errors: kNotFound, kIo.
  explicit ShardScanner(const std::filesystem::path& path);
  ShardScanner(const ShardScanner&) = delete;
  ShardScanner& operator=(const ShardScanner&) = delete;
  ~ShardScanner();

  /// The byte offset, within [begin, end), of the first NaN among elements of `dtype`. Holes read
  /// as zeros, which no dtype takes for NaN. Dtypes without NaN find nothing. Errors: kIo.
  std::optional<int64_t> find_nan(DType dtype, int64_t begin, int64_t end);

  /// A hash of the file's content: all of it up to 64 MiB, else of 64 blocks of 4 KiB spread
  /// evenly. Errors: kIo.
  uint64_t sample_hash();

 private:
  /// Calls `visit` with (offset, bytes) of consecutive pieces of [begin, end) that are not holes,
  /// until it returns true.
  void for_each_piece(int64_t begin, int64_t end,
                      const std::function<bool(int64_t, std::span<const std::byte>)>& visit);
  void read(int64_t offset, std::span<std::byte> bytes);

  std::filesystem::path path_;
  int fd_ = -1;
  std::vector<std::byte> buffer_;
};

}  // namespace deepinfer::checkpoint
