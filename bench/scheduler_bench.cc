#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include "scheduler/scheduler.h"

// What planning and landing a step costs the host while every request generates, with the rings of
// page boundaries kept and pages published: judged by 200 µs at 256 and 1 ms at 1,024 requests.
namespace deepinfer {
namespace {

constexpr int64_t kPrompt = 300;
constexpr int64_t kSteps = 400;

double microseconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin)
      .count();
}

double at(std::vector<double> values, double share) {
  std::ranges::sort(values);
  return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1))];
}

void measure(int64_t running, double goal_us) {
  const int64_t tokens = kPrompt + kSteps + 8;
  cache::PrefixCache cache({.num_pages = running * (tokens / 64 + 1),
                            .page_tokens = 64,
                            .num_snapshot_units = 4 * running,
                            .identity = "bench"});
  scheduler::Scheduler scheduler(
      {.max_prefill_rows = 8192, .max_running = running, .ring_slack = 16, .history = 3},
      {.num_layers = 40, .last_source = 20, .window = 128, .page_tokens = 64}, cache);
  for (int64_t id = 1; id <= running; ++id) {
    std::vector<int32_t> prompt(static_cast<size_t>(kPrompt), static_cast<int32_t>(id));
    scheduler.add(static_cast<scheduler::RequestId>(id), {.tokens = prompt, .max_tokens = tokens});
  }
  const std::vector<int32_t> token = {7};
  scheduler::BatchPlan plans[2];
  std::vector<double> planning, both;
  const auto land = [&](const scheduler::BatchPlan& plan) {
    for (const scheduler::PlanSpan& span : plan.spans) {
      scheduler.land(span,
                     span.samples ? std::span<const int32_t>(token) : std::span<const int32_t>());
    }
  };
  for (int64_t step = 0; planning.size() < kSteps - 64; ++step) {
    scheduler::BatchPlan& plan = plans[step % 2];
    const auto begin = std::chrono::steady_clock::now();
    scheduler.plan(plan);
    const double planned = microseconds_since(begin);
    land(plans[(step + 1) % 2]);  // the one before, while this one runs
    plans[(step + 1) % 2].clear();
    const bool generates = std::ssize(plan.spans) == running && std::ssize(plan.rows) == running;
    if (!generates) continue;
    planning.push_back(planned);
    both.push_back(microseconds_since(begin));
  }
  fmt::print(
      "{:5} running: plan {:6.1f} us median, {:6.1f} p99; plan and land {:6.1f} median, "
      "{:6.1f} p99; goal {:.0f}\n",
      running, at(planning, 0.5), at(planning, 0.99), at(both, 0.5), at(both, 0.99), goal_us);
  for (int64_t id = 1; id <= running; ++id) {
    scheduler.remove(static_cast<scheduler::RequestId>(id));
  }
  land(plans[0]);
  land(plans[1]);
}

}  // namespace
}  // namespace deepinfer

int main() {
  deepinfer::measure(256, 200);
  deepinfer::measure(1024, 1000);
}
