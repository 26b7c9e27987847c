#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace deepinfer {

/// A read-only memory mapping of a whole regular file. Move-only; unmaps on destruction. Bytes stay
/// valid and immutable for the mapping's lifetime as long as nobody truncates the file.
class MappedFile {
 public:
  /// Maps `path`. Errors: kNotFound, kIo, kInvalidFile (not a regular file).
  static MappedFile open(const std::filesystem::path& path);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::filesystem::path& path() const { return path_; }

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  std::filesystem::path path_;
};

/// Whether something of that name is there, a link that leads nowhere included. Never throws: a
/// name that the system cannot hold is not there.
bool entry_exists(const std::filesystem::path& path);

/// Reads a whole file into memory. Errors: kNotFound, kIo, kInvalidFile (larger than `max_bytes`).
std::string read_file(const std::filesystem::path& path, int64_t max_bytes);

/// A file being written: bytes go to a temporary name in the same folder, and commit() makes them
/// durable and renames it onto `path`. Destroyed without commit, nothing is left behind.
class FileWriter {
 public:
  /// Errors: kInvalidArgument (something that is no regular file has that name), kNotFound, kIo.
  explicit FileWriter(const std::filesystem::path& path);
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;
  ~FileWriter();

  /// Appends at the write position. Errors: kIo (disk full, …), naming the file.
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  /// Moves the write position forward without writing: the hole reads as zeros (sparse files).
  void skip(int64_t bytes);
  void commit();

 private:
  std::filesystem::path path_;
  std::filesystem::path temporary_path_;
  int fd_ = -1;
  int64_t position_ = 0;
};

}  // namespace deepinfer
