#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "apps/line_reader.h"

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
  /// Refuses to write to the regular file that `input` reads: the run would never end. Errors:
  /// kInvalidArgument.
  void check_differs_from(const LineReader& input) const;

 private:
  int fd_;
  std::string name_;
  bool created_ = false;  ///< The file is new and nothing was asked to be written yet.
  int64_t written_ = 0;   ///< Bytes of complete writes since truncate().
};

/// Checks, before any work, that a file can be made under a name given with `flag`. Errors:
/// kInvalidArgument (empty, or something that is no regular file has the name), kNotFound, kIo (its
/// folder).
void check_new_file(std::string_view flag, const std::string& path);
/// Whether two names lead to the same file, which need not exist.
bool same_target(const std::string& a, const std::string& b);

/// Opens standard input, output and error on /dev/null where the caller closed them, the wrong way
/// round, so that using them fails and no later file takes their place.
void reserve_standard_streams();

}  // namespace deepinfer::apps
