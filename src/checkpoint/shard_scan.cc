#include "checkpoint/shard_scan.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/hash.h"

namespace deepinfer::checkpoint {
namespace {

constexpr int64_t kPieceBytes = int64_t{1} << 20;

/// The index of the first NaN in a piece that starts at an element; -1 if there is none.
template <typename T, typename IsNan>
int64_t first_nan(std::span<const std::byte> bytes, IsNan is_nan) {
  const auto* const values = reinterpret_cast<const T*>(bytes.data());
  const auto count = static_cast<int64_t>(bytes.size() / sizeof(T));
  // Counting first keeps the common case a loop that the compiler vectorises.
  int64_t nans = 0;
  for (int64_t i = 0; i < count; ++i) nans += is_nan(values[i]) ? 1 : 0;
  if (nans == 0) return -1;
  int64_t i = 0;
  while (!is_nan(values[i])) ++i;
  return i * static_cast<int64_t>(sizeof(T));
}

int64_t first_nan_of(DType dtype, std::span<const std::byte> bytes) {
  switch (dtype) {
    case DType::kE8M0:
      return first_nan<uint8_t>(bytes, [](uint8_t b) { return b == 0xFF; });
    case DType::kE4M3:
      return first_nan<uint8_t>(bytes, [](uint8_t b) { return (b & 0x7F) == 0x7F; });
    case DType::kBF16:
      return first_nan<uint16_t>(bytes, [](uint16_t b) { return (b & 0x7FFF) > 0x7F80; });
    case DType::kF32:
      return first_nan<uint32_t>(bytes, [](uint32_t b) { return (b & 0x7FFFFFFF) > 0x7F800000; });
    default:
      return -1;
  }
}

}  // namespace

ShardScanner::ShardScanner(const std::filesystem::path& path)
    : path_(path), fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  if (fd_ < 0) {
    const int error = errno;
    fail(error == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo, "{}: cannot open: {}",
         path_.string(), std::strerror(error));
  }
  buffer_.resize(static_cast<size_t>(kPieceBytes));
}

ShardScanner::~ShardScanner() {
  ::close(fd_);
}

void ShardScanner::read(int64_t offset, std::span<std::byte> bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count =
        ::pread(fd_, bytes.data() + done, bytes.size() - done, offset + static_cast<int64_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      fail(ErrorCode::kIo, "{}: cannot read {} bytes at offset {}: {}", path_.string(),
           bytes.size(), offset, count < 0 ? std::strerror(errno) : "the file has become shorter");
    }
    done += static_cast<size_t>(count);
  }
}

void ShardScanner::for_each_piece(
    int64_t begin, int64_t end,
    const std::function<bool(int64_t, std::span<const std::byte>)>& visit) {
  while (begin < end) {
    // A file system without SEEK_DATA reports the offset itself: everything is data.
    const off_t data = ::lseek(fd_, begin, SEEK_DATA);
    if (data < 0 && errno == ENXIO) return;  // only a hole is left
    // Extents start at blocks, so an element never straddles a hole's edge unaligned.
    begin = std::max<int64_t>(begin, data);
    if (begin >= end) return;
    const off_t hole = ::lseek(fd_, begin, SEEK_HOLE);
    const int64_t data_end = hole < 0 ? end : std::min<int64_t>(end, hole);
    while (begin < data_end) {
      const int64_t count = std::min(kPieceBytes, data_end - begin);
      const std::span<std::byte> piece(buffer_.data(), static_cast<size_t>(count));
      read(begin, piece);
      if (visit(begin, piece)) return;
      begin += count;
    }
  }
}

std::optional<int64_t> ShardScanner::find_nan(DType dtype, int64_t begin, int64_t end) {
  std::optional<int64_t> result;
  for_each_piece(begin, end, [&](int64_t offset, std::span<const std::byte> bytes) {
    const int64_t index = first_nan_of(dtype, bytes);
    if (index >= 0) result = offset + index - begin;
    return index >= 0;
  });
  return result;
}

uint64_t ShardScanner::sample_hash() {
  constexpr int64_t kWholeBytes = int64_t{64} << 20;
  constexpr int64_t kSamples = 64;
  constexpr int64_t kSampleBytes = 4096;
  struct stat status{};
  if (::fstat(fd_, &status) != 0) {
    fail(ErrorCode::kIo, "{}: cannot stat: {}", path_.string(), std::strerror(errno));
  }
  const int64_t size = status.st_size;
  const int64_t step = size <= kWholeBytes ? kPieceBytes : (size - kSampleBytes) / (kSamples - 1);
  const int64_t length = size <= kWholeBytes ? kPieceBytes : kSampleBytes;
  uint64_t hash = static_cast<uint64_t>(size);
  for (int64_t offset = 0; offset < size; offset += step) {
    const std::span<std::byte> piece(buffer_.data(),
                                     static_cast<size_t>(std::min(length, size - offset)));
    read(offset, piece);
    hash = hash64(piece, hash);
  }
  return hash;
}

}  // namespace deepinfer::checkpoint
