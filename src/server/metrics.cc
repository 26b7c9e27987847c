#include "server/metrics.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <utility>

namespace deepinfer::server {
namespace {

/// Writes metrics of one model.
class TextWriter {
 public:
  TextWriter(std::string_view prefix, std::string_view model) : prefix_(prefix) {
    labels_ = "model_name=\"";
    for (const char c : model) {
      if (c == '"' || c == '\\') labels_ += '\\';
      if (c == '\n') {
        labels_ += "\\n";
      } else {
        labels_ += c;
      }
    }
    labels_ += '"';
  }

  void head(std::string_view name, std::string_view type, std::string_view help) {
    add("# HELP {0} {2}\n# TYPE {0} {1}\n", name, type, help);
  }

  template <typename T>
  void value(std::string_view name, std::string_view type, std::string_view help, T value) {
    const std::string full = prefixed(name);
    head(full, type, help);
    add("{}{{{}}} {}\n", full, labels_, value);
  }

  template <typename Key>
  void family(std::string_view name, std::string_view label, std::string_view help,
              const std::map<Key, int64_t>& values) {
    const std::string full = prefixed(name);
    head(full, "counter", help);
    for (const auto& [key, value] : values) {
      add("{}{{{},{}=\"{}\"}} {}\n", full, labels_, label, key, value);
    }
  }

  template <size_t kBuckets>
  void histogram(std::string_view name, std::string_view help,
                 const Histogram<kBuckets>& histogram) {
    const std::string full = prefixed(name);
    head(full, "histogram", help);
    int64_t below = 0;
    for (size_t i = 0; i < kBuckets; ++i) {
      below += histogram.counts[i];
      add("{}_bucket{{{},le=\"{}\"}} {}\n", full, labels_, histogram.bounds[i], below);
    }
    add("{0}_bucket{{{1},le=\"+Inf\"}} {2}\n{0}_sum{{{1}}} {3}\n{0}_count{{{1}}} {2}\n", full,
        labels_, histogram.count, histogram.sum);
  }

  template <typename... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
  }

  std::string take() { return std::move(text_); }

 private:
  std::string prefixed(std::string_view name) const { return prefix_ + std::string(name); }

  std::string prefix_;
  std::string labels_;
  std::string text_;
};

int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t total = 0;
  int64_t resident = 0;
  statm >> total >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

void append_engine(TextWriter& out, const EngineStats& stats) {
  out.value("num_requests_running", "gauge", "Requests that the engine computes.", stats.running);
  out.value("num_requests_waiting", "gauge", "Requests that wait for their turn.", stats.waiting);
  const double share = stats.pages_total == 0 ? 0.0
                                              : static_cast<double>(stats.pages_held) /
                                                    static_cast<double>(stats.pages_total);
  out.value("kv_cache_usage_perc", "gauge", "Share of the KV pages that requests hold, 0 to 1.",
            share);
  out.value("num_preemptions_total", "counter", "Requests that were put back to wait.",
            stats.preemptions);
  out.value("kv_page_evictions_total", "counter", "Cached KV pages that others took.",
            stats.page_evictions);
  out.value("engine_failed_steps_total", "counter", "Steps that failed and were repeated.",
            stats.failed_steps);
  out.value("engine_steps_total", "counter", "Steps of the engine.", stats.steps);
  out.value("engine_rows_total", "counter", "Token rows that the engine has computed.", stats.rows);
  out.head("deepinfer_kv_pages", "gauge", "KV pages by state; free + cached + held is constant.");
  out.add("deepinfer_kv_pages{{state=\"free\"}} {}\n", stats.pages_free);
  out.add("deepinfer_kv_pages{{state=\"cached\"}} {}\n", stats.pages_cached);
  out.add("deepinfer_kv_pages{{state=\"held\"}} {}\n", stats.pages_held);
}

}  // namespace

std::string metrics_text(const Metrics& metrics, const EngineStats& stats, std::string_view prefix,
                         std::string_view model) {
  TextWriter out(prefix, model);
  append_engine(out, stats);
  out.value("prompt_tokens_total", "counter", "Tokens of the prompts of finished requests.",
            metrics.prompt_tokens);
  out.value("prefix_cache_queries_total", "counter",
            "Prompt tokens that were looked up in the prefix cache.", metrics.prompt_tokens);
  out.value("prefix_cache_hits_total", "counter", "Prompt tokens found in the prefix cache.",
            metrics.cached_tokens);
  out.value("generation_tokens_total", "counter", "Generated tokens.", metrics.generation_tokens);
  out.family("request_success_total", "finished_reason", "Finished choices by reason.",
             metrics.finished);
  out.family("http_responses_total", "status", "Answers by HTTP status.", metrics.responses);
  out.value("http_connections", "gauge", "Open connections.", metrics.connections);
  out.histogram("time_to_first_token_seconds", "From the request's arrival to its first token.",
                metrics.time_to_first_token);
  out.histogram("inter_token_latency_seconds", "Between tokens of one choice.",
                metrics.inter_token_latency);
  out.histogram("e2e_request_latency_seconds", "From the request's arrival to its end.",
                metrics.end_to_end);
  out.histogram("request_prompt_tokens", "Prompt tokens per request.",
                metrics.request_prompt_tokens);
  out.histogram("request_generation_tokens", "Generated tokens per choice.",
                metrics.request_generation_tokens);
  out.head("process_resident_memory_bytes", "gauge", "Resident memory.");
  out.add("process_resident_memory_bytes {}\n", resident_bytes());
  out.head("process_cpu_seconds_total", "counter", "Processor time.");
  out.add("process_cpu_seconds_total {}\n", cpu_seconds());
  return out.take();
}

bool is_metric_prefix(std::string_view prefix) {
  const auto valid = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == ':' ||
           (c >= '0' && c <= '9');
  };
  return !prefix.empty() && !(prefix[0] >= '0' && prefix[0] <= '9') &&
         std::ranges::all_of(prefix, valid);
}

}  // namespace deepinfer::server
