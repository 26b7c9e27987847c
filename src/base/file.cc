#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace deepinfer {
namespace {

ErrorCode code_of_errno(int error) {
  return error == ENOENT || error == ENOTDIR ? ErrorCode::kNotFound : ErrorCode::kIo;
}

/// Closes a descriptor on scope exit.
class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&&) = delete;
  ~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

/// Opens a regular file for reading and returns its size in `size`.
FileDescriptor open_regular(const std::filesystem::path& path, size_t& size) {
  // O_NONBLOCK: opening a FIFO that nobody writes to must not hang; it has no effect on regular
  // files.
  FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd.get() < 0) {
    const int error = errno;
    fail(code_of_errno(error), "{}: cannot open: {}", path.string(), std::strerror(error));
  }
  struct stat status{};
  if (::fstat(fd.get(), &status) != 0) {
    fail(ErrorCode::kIo, "{}: cannot stat: {}", path.string(), std::strerror(errno));
  }
  if (!S_ISREG(status.st_mode)) {
    fail(ErrorCode::kInvalidFile, "{}: not a regular file", path.string());
  }
  size = static_cast<size_t>(status.st_size);
  return fd;
}

}  // namespace

MappedFile MappedFile::open(const std::filesystem::path& path) {
  MappedFile file;
  file.path_ = path;
  const FileDescriptor fd = open_regular(path, file.size_);
  if (file.size_ == 0) return file;
  void* address = ::mmap(nullptr, file.size_, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (address == MAP_FAILED) {
    file.size_ = 0;
    fail(ErrorCode::kIo, "{}: cannot map: {}", path.string(), std::strerror(errno));
  }
  file.data_ = static_cast<const std::byte*>(address);
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      path_(std::move(other.path_)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(path_, other.path_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

bool entry_exists(const std::filesystem::path& path) {
  struct stat status{};
  return ::lstat(path.c_str(), &status) == 0;
}

std::string read_file(const std::filesystem::path& path, int64_t max_bytes) {
  size_t size = 0;
  const FileDescriptor fd = open_regular(path, size);
  if (size > static_cast<size_t>(max_bytes)) {
    fail(ErrorCode::kInvalidFile, "{}: {} bytes is more than the {} allowed", path.string(), size,
         max_bytes);
  }
  std::string content(size, '\0');
  size_t done = 0;
  while (done < size) {
    const ssize_t count = ::read(fd.get(), content.data() + done, size - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      fail(ErrorCode::kIo, "{}: cannot read: {}", path.string(), std::strerror(errno));
    }
    if (count == 0) break;
    done += static_cast<size_t>(count);
  }
  content.resize(done);
  return content;
}

FileWriter::FileWriter(const std::filesystem::path& path) : path_(path) {
  // The rename in commit() would put a file in the place of a pipe or a device.
  struct stat status{};
  if (::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
    fail(ErrorCode::kInvalidArgument, "{}: exists and is not a regular file", path.string());
  }
  std::string pattern = path.string() + ".tmp.XXXXXX";
  fd_ = ::mkstemp(pattern.data());
  if (fd_ < 0) {
    const int error = errno;
    fail(code_of_errno(error), "{}: cannot create: {}", path.string(), std::strerror(error));
  }
  // mkstemp makes the file private; give it the permissions that an ordinary open() would have
  // given.
  const mode_t mask = ::umask(0);
  ::umask(mask);
  ::fchmod(fd_, 0666 & ~mask);
  temporary_path_ = pattern;
}

FileWriter::~FileWriter() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(temporary_path_.c_str());
}

void FileWriter::write(std::span<const std::byte> bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count = ::pwrite(fd_, bytes.data() + done, bytes.size() - done, position_);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      fail(ErrorCode::kIo, "{}: cannot write: {}", path_.string(), std::strerror(errno));
    }
    done += static_cast<size_t>(count);
    position_ += count;
  }
}

void FileWriter::write(std::string_view text) {
  write(std::as_bytes(std::span(text)));
}

void FileWriter::skip(int64_t bytes) {
  position_ += bytes;
  if (::ftruncate(fd_, position_) != 0) {
    fail(ErrorCode::kIo, "{}: cannot extend to {} bytes: {}", path_.string(), position_,
         std::strerror(errno));
  }
}

void FileWriter::commit() {
  if (::fsync(fd_) != 0 || ::rename(temporary_path_.c_str(), path_.c_str()) != 0) {
    fail(ErrorCode::kIo, "{}: cannot finish writing: {}", path_.string(), std::strerror(errno));
  }
  ::close(std::exchange(fd_, -1));
}

}  // namespace deepinfer
