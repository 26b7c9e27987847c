#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace deepinfer::apps {

/// A line of an input file, without its end.
struct Line {
  int64_t number = 0;  ///< From 1.
  std::string text;
  bool too_long = false;  ///< Longer than LineReader::kMaxLineBytes; the text is missing.
};

/// Reads a file or standard input line by line; lines of white space alone are left out. Holds one
/// line and one buffer, whatever the size of the file. Used by one thread.
class LineReader {
 public:
  /// A million token ids fit; what JSON makes of a hostile line of this size still fits in memory.
  static constexpr int64_t kMaxLineBytes = int64_t{16} << 20;
  enum class Status { kLine, kNotYet, kEnd };

  /// "-" is standard input. Errors: kNotFound, kIo, kInvalidFile (a directory).
  explicit LineReader(const std::string& path);
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;
  ~LineReader();

  /// The next line. Without `wait`, kNotYet if the writer of a pipe has not sent it yet; with it,
  /// only when `interrupt_fd` became readable first. Errors: kIo.
  Status next(Line& line, bool wait, int interrupt_fd);

  /// How many lines there are in all, by reading a regular file once more; nothing for other files.
  std::optional<int64_t> count_lines() const;

  /// The descriptor that is read.
  int fd() const { return fd_; }
  /// "standard input" or the path: for messages.
  const std::string& name() const { return name_; }

 private:
  bool take_line(Line& line);
  bool wait_readable(bool wait, int interrupt_fd) const;
  void read_more();

  int fd_ = 0;
  std::string name_;
  std::string buffer_;     ///< Read and not yet handed out.
  size_t searched_ = 0;    ///< Bytes of the buffer known to hold no line end.
  bool skipping_ = false;  ///< Inside a line that was too long.
  bool at_end_ = false;
  int64_t number_ = 0;  ///< Of the last line taken.
};

}  // namespace deepinfer::apps
