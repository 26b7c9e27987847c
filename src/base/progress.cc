#include "base/progress.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

namespace deepinfer {

ProgressBar::ProgressBar(std::string label, int64_t total, std::string unit)
    : label_(std::move(label)),
      total_(std::max<int64_t>(total, 1)),
      unit_(std::move(unit)),
      terminal_(::isatty(STDERR_FILENO) != 0) {}

ProgressBar::~ProgressBar() {
  if (shown_) std::fputs("\r\033[K", stderr);
}

void ProgressBar::update(int64_t done, const std::string& detail) {
  if (!terminal_) return;
  const Clock::time_point now = Clock::now();
  const double seconds = std::chrono::duration<double>(now - start_).count();
  if (seconds < 1.0 || now - last_draw_ < std::chrono::milliseconds(100)) return;
  last_draw_ = now;
  shown_ = true;
  constexpr int kWidth = 24;
  const double fraction = std::min(1.0, static_cast<double>(done) / static_cast<double>(total_));
  const auto filled = static_cast<size_t>(fraction * kWidth);
  const double eta = fraction > 0 ? seconds * (1.0 - fraction) / fraction : 0;
  const std::string bar = std::string(filled, '#') + std::string(kWidth - filled, '-');
  const std::string line =
      fmt::format("\r\033[K{} [{}] {}/{} {}{}{}  ETA {:.0f} s", label_, bar, done, total_, unit_,
                  detail.empty() ? "" : "  ", detail, eta);
  std::fputs(line.c_str(), stderr);
  std::fflush(stderr);
}

}  // namespace deepinfer
