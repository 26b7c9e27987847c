#pragma once

#include <fmt/core.h>

#include <utility>

#include "deepinfer/error.h"

namespace deepinfer {

/// Throws Error{code, formatted message}: `fail(ErrorCode::kInvalidFile, "{}: {}", path, why)`.
template <typename... Args>
[[noreturn]] void fail(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

/// Throws the kInternal error of a failed DEEPINFER_CHECK.
[[noreturn]] void fail_check(const char* condition, const char* file, int line,
                             const std::string& message);

}  // namespace deepinfer

/// Always on: a broken invariant is a bug and throws ErrorCode::kInternal with file and line. Never
/// reachable from user input. The arguments after the condition are an fmt format and its values.
#define DEEPINFER_CHECK(condition, ...)                                                  \
  do {                                                                                   \
    if (!(condition)) [[unlikely]]                                                       \
      ::deepinfer::fail_check(#condition, __FILE__, __LINE__, fmt::format(__VA_ARGS__)); \
  } while (false)

/// DEEPINFER_CHECK for inner loops: compiled out of release builds.
#ifdef NDEBUG
#define DEEPINFER_DCHECK(condition, ...) \
  do {                                   \
  } while (false)
#else
#define DEEPINFER_DCHECK(condition, ...) DEEPINFER_CHECK(condition, __VA_ARGS__)
#endif
