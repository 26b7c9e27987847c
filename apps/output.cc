#include "apps/output.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "base/error.h"

namespace deepinfer::apps {

Output::Output() : fd_(STDOUT_FILENO), name_("standard output") {}

Output::Output(const std::optional<std::string>& path) : Output() {
  if (!path || *path == "-") return;
  name_ = *path;
  fd_ = ::open(path->c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  created_ = fd_ >= 0;
  if (fd_ < 0 && errno == EEXIST) {
    fd_ = ::open(path->c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  }
  if (fd_ < 0) {
    const int error = errno;
    fail(error == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo, "{}: cannot open for writing: {}",
         name_, std::strerror(error));
  }
}

Output::~Output() {
  if (created_) ::unlink(name_.c_str());  // the run was refused before it began
  if (fd_ != STDOUT_FILENO && fd_ >= 0) ::close(fd_);
}

void Output::truncate() {
  created_ = false;
  if (fd_ == STDOUT_FILENO) return;
  struct stat status{};
  if (::fstat(fd_, &status) != 0 || !S_ISREG(status.st_mode)) return;
  if (::ftruncate(fd_, 0) != 0) {
    fail(ErrorCode::kIo, "{}: cannot empty: {}", name_, std::strerror(errno));
  }
}

void Output::write(std::string_view text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t count = ::write(fd_, text.data() + done, text.size() - done);
    if (count >= 0) {
      done += static_cast<size_t>(count);
      continue;
    }
    const int error = errno;
    if (error == EINTR) continue;
    if (error == EPIPE) throw ClosedOutput{};
    // No half record stays behind; if this fails too, the first error is the one to report.
    if (fd_ != STDOUT_FILENO && ::ftruncate(fd_, written_) != 0) done = 0;
    fail(ErrorCode::kIo, "{}: cannot write: {}", name_, std::strerror(error));
  }
  written_ += static_cast<int64_t>(text.size());
}

bool Output::is_terminal() const {
  return ::isatty(fd_) != 0;
}

void Output::check_differs_from(const LineReader& input) const {
  struct stat mine{};
  struct stat other{};
  if (::fstat(fd_, &mine) == 0 && S_ISREG(mine.st_mode) && ::fstat(input.fd(), &other) == 0 &&
      mine.st_dev == other.st_dev && mine.st_ino == other.st_ino) {
    fail(ErrorCode::kInvalidArgument, "{}: is the input file too; give another output", name_);
  }
}

void check_new_file(std::string_view flag, const std::string& path) {
  if (path.empty()) fail(ErrorCode::kInvalidArgument, "{}: the file name is empty", flag);
  struct stat status{};
  if (::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
    fail(ErrorCode::kInvalidArgument, "{}: {} exists and is not a regular file", flag, path);
  }
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (::access(folder.empty() ? "." : folder.c_str(), W_OK | X_OK) != 0) {
    const int error = errno;
    fail(error == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo, "{}: {}: cannot create: {}", flag,
         path, std::strerror(error));
  }
}

bool same_target(const std::string& a, const std::string& b) {
  struct stat first{};
  struct stat second{};
  if (::stat(a.c_str(), &first) == 0 && ::stat(b.c_str(), &second) == 0) {
    return first.st_dev == second.st_dev && first.st_ino == second.st_ino;
  }
  std::error_code ignored;
  const auto absolute = [&](const std::string& path) {
    return std::filesystem::weakly_canonical(std::filesystem::absolute(path, ignored), ignored);
  };
  return absolute(a) == absolute(b);
}

void reserve_standard_streams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
    // open() returns the lowest free descriptor, which is this one.
    const int mode = fd == STDIN_FILENO ? O_WRONLY : O_RDONLY;
    if (::open("/dev/null", mode) != fd) return;
  }
}

}  // namespace deepinfer::apps
