#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace deepinfer {

/// A progress line on stderr: "label  [#####-----]  done/total unit  rate/s  ETA". Shows only if
/// stderr is a terminal and the work has already lasted a second; redraws at most ten times a
/// second; clears itself at the end. Used from one thread.
class ProgressBar {
 public:
  ProgressBar(std::string label, int64_t total, std::string unit);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  /// `detail` is appended to the line (for example a rate in another unit).
  void update(int64_t done, const std::string& detail = "");

 private:
  using Clock = std::chrono::steady_clock;
  std::string label_;
  int64_t total_;
  std::string unit_;
  bool terminal_;
  bool shown_ = false;
  Clock::time_point start_ = Clock::now();
  Clock::time_point last_draw_ = start_;
};

}  // namespace deepinfer
