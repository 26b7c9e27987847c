#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "server/load_client.h"

namespace deepinfer::apps {

/// Mean and quantiles of a list of times, in milliseconds; all zero if there are none.
struct TimeSummary {
  double mean = 0;
  double p50 = 0;
  double p90 = 0;
  double p99 = 0;
};
TimeSummary summarize(std::vector<double> seconds);

/// What a request must keep to count as good; 0: whatever.
struct Goals {
  double first_ms = 0;
  double gap_ms = 0;  ///< The mean time between its tokens.
  double end_ms = 0;
};

/// What a load test found.
struct LoadReport {
  int64_t requests = 0;
  int64_t failed = 0;
  double duration_s = 0;  ///< From the first request to the last byte.
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t good = 0;  ///< Requests that kept all goals.
  TimeSummary first;
  TimeSummary gap;
  TimeSummary end;
  std::string first_error;

  double requests_per_s() const { return per_second(static_cast<double>(requests - failed)); }
  double good_per_s() const { return per_second(static_cast<double>(good)); }
  double prompt_tokens_per_s() const { return per_second(static_cast<double>(prompt_tokens)); }
  double tokens_per_s() const { return per_second(static_cast<double>(completion_tokens)); }

 private:
  double per_second(double amount) const { return duration_s > 0 ? amount / duration_s : 0; }
};
LoadReport make_report(std::span<const server::LoadResult> results, const Goals& goals);

/// For people, as a small table, and for programs, as one line of JSON.
std::string to_text(const LoadReport& report);
std::string to_json_line(const LoadReport& report);

/// A line of a picture.
struct Series {
  std::string name;
  struct Point {
    double x = 0;
    double y = 0;
    std::string label = {};
  };
  std::vector<Point> points;
};
/// What a picture says besides its numbers; axes with their units.
struct Labels {
  std::string title;
  std::string subtitle;  ///< Under which conditions; what the points' labels count.
  std::string x;
  std::string y;
};
/// An SVG picture of series over axes that begin at zero; pointing at a point shows its values.
std::string to_svg(const Labels& labels, std::span<const Series> series);

}  // namespace deepinfer::apps
