#include "apps/load_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <numeric>

#include "apps/records.h"

namespace deepinfer::apps {
namespace {

double mean(const std::vector<double>& values) {
  return values.empty() ? 0
                        : std::accumulate(values.begin(), values.end(), 0.0) /
                              static_cast<double>(values.size());
}

bool is_good(const server::LoadResult& result, const Goals& goals) {
  const auto keeps = [](double goal_ms, double seconds) {
    return goal_ms <= 0 || seconds * 1e3 <= goal_ms;
  };
  return result.ok && keeps(goals.first_ms, result.first_s) &&
         keeps(goals.gap_ms, mean(result.gaps_s)) && keeps(goals.end_ms, result.end_s);
}

std::string json_of(const TimeSummary& times) {
  return fmt::format(R"({{"mean":{:.3f},"p50":{:.3f},"p90":{:.3f},"p99":{:.3f}}})", times.mean,
                     times.p50, times.p90, times.p99);
}

std::string row(std::string_view name, const TimeSummary& times) {
  return fmt::format("  {:<24}{:>10.2f}{:>10.2f}{:>10.2f}{:>10.2f}\n", name, times.mean, times.p50,
                     times.p90, times.p99);
}

/// The next number of the form 1, 2 or 5 times a power of ten.
double round_up(double value) {
  if (value <= 0) return 1;
  const double power = std::pow(10.0, std::floor(std::log10(value)));
  for (const double step : {1.0, 2.0, 5.0}) {
    if (value <= step * power) return step * power;
  }
  return 10 * power;
}

/// `text` inside of SVG.
std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '<') {
      out += "&lt;";
    } else if (c == '&') {
      out += "&amp;";
    } else {
      out += c;
    }
  }
  return out;
}

constexpr double kWidth = 720;
constexpr double kHeight = 440;
constexpr double kLeft = 70;
constexpr double kRight = 160;
constexpr double kTop = 64;
constexpr double kBottom = 60;

/// Where values lie in the picture.
struct Axes {
  double max_x;
  double max_y;
  double x(double value) const { return kLeft + value / max_x * (kWidth - kLeft - kRight); }
  double y(double value) const {
    return kHeight - kBottom - value / max_y * (kHeight - kTop - kBottom);
  }
};

void append_grid(std::string& out, const Axes& axes) {
  constexpr int kLines = 5;
  for (int i = 0; i <= kLines; ++i) {
    const double x = axes.max_x * i / kLines;
    const double y = axes.max_y * i / kLines;
    fmt::format_to(std::back_inserter(out),
                   R"(<path d="M{0} {1}V{2}M{3} {4}H{5}" stroke="#ddd"/>)"
                   R"(<text x="{0}" y="{6}" text-anchor="middle">{7:.4g}</text>)"
                   R"(<text x="{8}" y="{9}" text-anchor="end">{10:.4g}</text>)"
                   "\n",
                   axes.x(x), kTop, kHeight - kBottom, kLeft, axes.y(y), kWidth - kRight,
                   kHeight - kBottom + 18, x, kLeft - 8, axes.y(y) + 4, y);
  }
}

void append_series(std::string& out, const Axes& axes, const Series& series, size_t index) {
  constexpr std::array<std::string_view, 6> kColours = {"#3b6fd4", "#d4743b", "#3b9e5f",
                                                        "#a33bd4", "#b8a012", "#555555"};
  const std::string_view colour = kColours[index % kColours.size()];
  std::string line;
  for (const auto& [x, y, label] : series.points) {
    line += fmt::format("{}{:.1f} {:.1f}", line.empty() ? "M" : "L", axes.x(x), axes.y(y));
    fmt::format_to(std::back_inserter(out),
                   "<circle cx=\"{0:.1f}\" cy=\"{1:.1f}\" r=\"4\" fill=\"{2}\"><title>{3:.4g}, "
                   "{4:.4g}</title></circle>\n"
                   "<text x=\"{5:.1f}\" y=\"{6:.1f}\" font-size=\"10\" fill=\"{2}\">{7}</text>\n",
                   axes.x(x), axes.y(y), colour, x, y, axes.x(x) + 6, axes.y(y) - 6,
                   escaped(label));
  }
  fmt::format_to(std::back_inserter(out),
                 "<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>\n"
                 "<text x=\"{}\" y=\"{}\" fill=\"{}\">{}</text>\n",
                 line, colour, kWidth - kRight + 14, kTop + 10 + 20 * static_cast<double>(index),
                 colour, escaped(series.name));
}

}  // namespace

TimeSummary summarize(std::vector<double> seconds) {
  if (seconds.empty()) return {};
  std::ranges::sort(seconds);
  const auto quantile = [&seconds](double share) {
    // The smallest value that so large a share of the values does not exceed.
    const double rank = std::ceil(share * static_cast<double>(seconds.size()));
    return 1e3 * seconds[static_cast<size_t>(std::max(rank, 1.0)) - 1];
  };
  return {.mean = 1e3 * mean(seconds),
          .p50 = quantile(0.5),
          .p90 = quantile(0.9),
          .p99 = quantile(0.99)};
}

LoadReport make_report(std::span<const server::LoadResult> results, const Goals& goals) {
  LoadReport report;
  std::vector<double> first;
  std::vector<double> gaps;
  std::vector<double> ends;
  for (const server::LoadResult& result : results) {
    ++report.requests;
    report.duration_s = std::max(report.duration_s, result.start_s + result.end_s);
    if (!result.ok) {
      if (report.failed++ == 0) report.first_error = result.error;
      continue;
    }
    report.prompt_tokens += result.prompt_tokens;
    report.cached_tokens += result.cached_tokens;
    report.completion_tokens += result.completion_tokens;
    report.good += is_good(result, goals) ? 1 : 0;
    first.push_back(result.first_s);
    ends.push_back(result.end_s);
    gaps.insert(gaps.end(), result.gaps_s.begin(), result.gaps_s.end());
  }
  report.first = summarize(std::move(first));
  report.gap = summarize(std::move(gaps));
  report.end = summarize(std::move(ends));
  return report;
}

std::string to_text(const LoadReport& report) {
  std::string text = fmt::format(
      "{} requests in {:.2f} s, {} failed{}\n"
      "  requests per second     {:>10.2f}, {:.2f} within the goals\n"
      "  prompt tokens per second{:>10.1f} ({} of {} tokens cached)\n"
      "  tokens per second       {:>10.1f}\n"
      "  milliseconds                  mean       p50       p90       p99\n",
      report.requests, report.duration_s, report.failed,
      report.first_error.empty() ? "" : ": " + report.first_error, report.requests_per_s(),
      report.good_per_s(), report.prompt_tokens_per_s(), report.cached_tokens, report.prompt_tokens,
      report.tokens_per_s());
  return text + row("to the first token", report.first) + row("between tokens", report.gap) +
         row("to the end", report.end);
}

std::string to_json_line(const LoadReport& report) {
  return fmt::format(
      R"({{"requests":{},"failed":{},"duration_s":{:.4f},"prompt_tokens":{},"cached_tokens":{},)"
      R"("completion_tokens":{},"requests_per_s":{:.4f},"good_requests_per_s":{:.4f},)"
      R"("prompt_tokens_per_s":{:.2f},"tokens_per_s":{:.2f},"first_token_ms":{},)"
      R"("between_tokens_ms":{},"end_to_end_ms":{},"first_error":{}}})"
      "\n",
      report.requests, report.failed, report.duration_s, report.prompt_tokens, report.cached_tokens,
      report.completion_tokens, report.requests_per_s(), report.good_per_s(),
      report.prompt_tokens_per_s(), report.tokens_per_s(), json_of(report.first),
      json_of(report.gap), json_of(report.end),
      report.first_error.empty() ? "null" : json_string(report.first_error));
}

std::string to_svg(const Labels& labels, std::span<const Series> series) {
  Axes axes{0, 0};
  for (const Series& line : series) {
    for (const auto& [x, y, label] : line.points) {
      axes.max_x = std::max(axes.max_x, x);
      axes.max_y = std::max(axes.max_y, y);
    }
  }
  axes.max_x = round_up(axes.max_x);
  axes.max_y = round_up(axes.max_y);
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} "
      "{1}\" font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"{0}\" height=\"{1}\" "
      "fill=\"#fff\"/>\n<text x=\"{2}\" y=\"24\" font-size=\"16\">{3}</text>\n"
      "<text x=\"{2}\" y=\"42\" fill=\"#666\">{4}</text>\n",
      kWidth, kHeight, kLeft, escaped(labels.title), escaped(labels.subtitle));
  append_grid(out, axes);
  fmt::format_to(std::back_inserter(out),
                 "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n"
                 "<text transform=\"translate(16 {}) rotate(-90)\" "
                 "text-anchor=\"middle\">{}</text>\n",
                 (kLeft + kWidth - kRight) / 2, kHeight - 16, escaped(labels.x), kHeight / 2,
                 escaped(labels.y));
  for (size_t i = 0; i < series.size(); ++i) append_series(out, axes, series[i], i);
  return out + "</svg>\n";
}

}  // namespace deepinfer::apps
