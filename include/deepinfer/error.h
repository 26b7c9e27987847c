#pragma once

#include <stdexcept>
#include <string>

namespace deepinfer {

/// What kind of failure an Error reports. Each kind maps to one exit code and one HTTP status.
enum class ErrorCode {
  kInvalidArgument,    ///< A flag, request field or API argument is wrong. Exit 2, HTTP 400.
  kInvalidFile,        ///< A file's content is malformed or inconsistent. Exit 2, HTTP 400.
  kNotFound,           ///< A named file or resource does not exist. Exit 2, HTTP 404.
  kIo,                 ///< Reading or writing failed (disk full, permission). Exit 2, HTTP 500.
  kUnsupported,        ///< Valid input that this build or machine cannot serve. Exit 2, HTTP 400.
  kResourceExhausted,  ///< Memory, pages or another limit would be exceeded. Exit 2, HTTP 503.
  kInternal,           ///< A broken invariant: a bug. Exit 70, HTTP 500.
};

/// The exception that crosses DeepInfer's library boundaries. The message is one sentence that
/// names what is wrong, where, and what would be right.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

/// The process exit code for an error kind: 70 for internal faults, 2 for everything else.
constexpr int exit_code(ErrorCode code) noexcept {
  return code == ErrorCode::kInternal ? 70 : 2;
}

}  // namespace deepinfer
