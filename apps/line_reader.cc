#include "apps/line_reader.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/error.h"

namespace deepinfer::apps {
namespace {

constexpr size_t kReadBytes = size_t{1} << 16;

bool is_blank(const std::string& text) {
  return text.find_first_not_of(" \t\r\n") == std::string::npos;
}

}  // namespace

LineReader::LineReader(const std::string& path) : name_(path == "-" ? "standard input" : path) {
  if (path != "-") {
    fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd_ < 0) {
      const int error = errno;
      fail(error == ENOENT || error == ENOTDIR ? ErrorCode::kNotFound : ErrorCode::kIo,
           "{}: cannot open: {}", name_, std::strerror(error));
    }
  }
  struct stat status{};
  if (::fstat(fd_, &status) == 0 && S_ISDIR(status.st_mode)) {
    if (fd_ != STDIN_FILENO) ::close(fd_);
    fail(ErrorCode::kInvalidFile, "{}: a directory, not a file of JSON lines", name_);
  }
}

LineReader::~LineReader() {
  if (fd_ != STDIN_FILENO) ::close(fd_);
}

LineReader::Status LineReader::next(Line& line, bool wait, int interrupt_fd) {
  for (;;) {
    while (take_line(line)) {
      if (line.too_long || !is_blank(line.text)) return Status::kLine;
    }
    if (at_end_) return Status::kEnd;
    if (!wait_readable(wait, interrupt_fd)) return Status::kNotYet;
    read_more();
  }
}

bool LineReader::take_line(Line& line) {
  const size_t end = buffer_.find('\n', searched_);
  searched_ = buffer_.size();
  const bool complete = end != std::string::npos;
  const bool last = at_end_ && !buffer_.empty();
  if (!complete && !last && !(at_end_ && skipping_)) {
    if (buffer_.size() > static_cast<size_t>(kMaxLineBytes)) skipping_ = true;
    if (skipping_) {
      buffer_.clear();
      searched_ = 0;
    }
    return false;
  }
  const size_t size = complete ? end : buffer_.size();
  line.number = ++number_;
  line.too_long = skipping_ || size > static_cast<size_t>(kMaxLineBytes);
  line.text = line.too_long ? std::string() : buffer_.substr(0, size);
  buffer_.erase(0, complete ? end + 1 : size);
  searched_ = 0;
  skipping_ = false;
  return true;
}

bool LineReader::wait_readable(bool wait, int interrupt_fd) const {
  std::array<pollfd, 2> fds = {pollfd{fd_, POLLIN, 0}, pollfd{interrupt_fd, POLLIN, 0}};
  for (;;) {
    const int count = ::poll(fds.data(), fds.size(), wait ? -1 : 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail(ErrorCode::kIo, "{}: cannot wait: {}", name_, std::strerror(errno));
    // A hang-up or an error is for read() to report.
    return (fds[1].revents & POLLIN) == 0 && fds[0].revents != 0;
  }
}

void LineReader::read_more() {
  const size_t size = buffer_.size();
  buffer_.resize(size + kReadBytes);
  const ssize_t count = ::read(fd_, buffer_.data() + size, kReadBytes);
  const int error = errno;
  buffer_.resize(size + static_cast<size_t>(std::max<ssize_t>(count, 0)));
  if (count < 0 && error != EINTR && error != EAGAIN) {
    fail(ErrorCode::kIo, "{}: cannot read: {}", name_, std::strerror(error));
  }
  if (count == 0) at_end_ = true;
}

std::optional<int64_t> LineReader::count_lines() const {
  struct stat status{};
  if (::fstat(fd_, &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
  std::vector<char> block(kReadBytes * 16);
  int64_t lines = 0;
  bool blank = true;
  for (off_t offset = 0;;) {
    const ssize_t count = ::pread(fd_, block.data(), block.size(), offset);
    if (count <= 0) return lines + (blank ? 0 : 1);
    offset += count;
    for (ssize_t i = 0; i < count; ++i) {
      const char c = block[static_cast<size_t>(i)];
      if (c == '\n') {
        lines += blank ? 0 : 1;
        blank = true;
      } else if (c != ' ' && c != '\t' && c != '\r') {
        blank = false;
      }
    }
  }
}

}  // namespace deepinfer::apps
