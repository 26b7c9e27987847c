#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace deepinfer::apps {

/// Thrown when the reader of standard output went away (EPIPE): the program ends quietly.
struct ClosedOutput {};

/// Where a sub-command writes its results: standard output or a file. Every write() reaches the
/// system before it returns, so that a crash keeps whatever was written. Used by one thread.
class Output {
 public:
  /// Standard output.
  Output();
  /// `path`, or standard output if there is none. An existing file keeps its content until
  /// truncate(). Errors: kIo, kNotFound.
  explicit Output(const std::optional<std::string>& path);
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;
  ~Output();

  /// Empties a regular file.
  void truncate();
  /// Writes all of `text`. When a regular file is full, it is cut back to the last whole write.
  /// Errors: kIo; ClosedOutput.
  void write(std::string_view text);

  bool is_terminal() const;
  /// Whether `path` names the file that this writes to.
  bool is_same_file(const std::string& path) const;

 private:
  int fd_;
  std::string name_;
  int64_t written_ = 0;  ///< Bytes of complete writes since truncate().
};

/// Opens standard input, output and error on /dev/null where the caller closed them, the wrong way
/// round, so that using them fails and no later file takes their place.
void reserve_standard_streams();

}  // namespace deepinfer::apps
