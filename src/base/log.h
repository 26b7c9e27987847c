#pragma once

#include <fmt/core.h>

#include <string_view>
#include <utility>

namespace deepinfer {

enum class LogLevel { kDebug, kInfo, kWarning, kError, kOff };

/// Sets the least severe level that is written to stderr (default: kWarning). Any thread.
void set_log_level(LogLevel level);
bool log_enabled(LogLevel level);
/// Writes one line to stderr. Any thread; lines are never interleaved.
void log_line(LogLevel level, std::string_view message);

template <typename... Args>
void log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(level)) log_line(level, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  log(LogLevel::kInfo, format, std::forward<Args>(args)...);
}
template <typename... Args>
void log_warning(fmt::format_string<Args...> format, Args&&... args) {
  log(LogLevel::kWarning, format, std::forward<Args>(args)...);
}

}  // namespace deepinfer
