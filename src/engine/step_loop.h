#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "cache/prefix_cache.h"
#include "engine/request_state.h"
#include "engine/scoring.h"
#include "engine/step.h"
#include "scheduler/scheduler.h"

namespace deepinfer::engine {

/// The requests that wait and run, and the steps that compute them. A step is planned and launched
/// while the one before it runs, so what a step shows (an end token, a stop string) is known only
/// when one more step is under way: that step's rows of an ended request are dropped. All members
/// belong to the engine thread, except stats().
class StepLoop {
 public:
  /// Steps launched at once: one that runs and one that waits behind it.
  static constexpr size_t kDepth = 2;

  /// `executor`, `cache` and `tiers` (null: none) must outlive the loop.
  StepLoop(StepExecutor& executor, cache::PrefixCache& cache, const scheduler::Limits& limits,
           const cache::RestartRules& rules, cache::CacheTiers* tiers = nullptr);
  ~StepLoop();

  void start(scheduler::RequestId id, std::unique_ptr<RequestState> request);
  void start(scheduler::RequestId id, std::unique_ptr<ScoreJob> job);
  /// Ends a request that still runs with kCancelled. Unknown ids are ignored.
  void cancel(scheduler::RequestId id);
  /// Ends everything, with kCancelled or, if there is a reason, with kError, and waits for what is
  /// launched. Throws nothing.
  void end_all(const std::string& error = "") noexcept;

  /// Launches steps while there is something to compute or to copy and less than kDepth are under
  /// way; false if it launched none.
  bool launch();
  /// Takes the results of the oldest steps that have them; false if there were none. A request
  /// whose computation fails (a damaged table, no memory) ends with kError once it has failed
  /// alone; the others of the step start over.
  bool land();
  /// Waits for the oldest step, if there is one, and takes its results.
  void wait_oldest();
  /// Waits for everything launched and takes its results: the device is idle then.
  void drain();
  /// Hands what is cached and not yet in the tiers to them; waits for the device, not for the
  /// tiers. To be called at the end, when nothing is launched any more.
  void save_cached();
  /// Whether a request waits for the tiers: land() must be called now and then, see
  /// CacheTiers::kLoadTimeout.
  bool is_loading() const { return !loading_.empty(); }

  bool idle() const { return generating_.empty() && scoring_.empty() && flying_.empty(); }

  /// A snapshot after the last step. Any thread.
  EngineStats stats() const;

 private:
  void add(scheduler::RequestId id, const RequestState& request);
  /// Schedules the requests whose pages have come from the tiers, or will not; false if none.
  bool add_loaded();
  /// Launches the last free step, which has been filled.
  void launch_free();
  /// Gives back what a step has copied.
  void finish_transfers(Step& step);
  bool plan(Step& step);
  void describe_rows(Step& step);
  RowRequest generating_row(const RequestState& request, const scheduler::PlanSpan& span) const;
  void take_oldest();
  void deliver(Step& step);
  void deliver_tokens(const Step& step, const scheduler::PlanSpan& span);
  void deliver_scores(const Step& step, const scheduler::PlanSpan& span);
  GeneratedToken token_of(const Step& step, int64_t row, int32_t num_top) const;
  /// Gives up all steps under way, of which `step` is the first and failed.
  void recover(Step& step);
  void fail_request(scheduler::RequestId id, const std::exception_ptr& error);
  void count_step(const Step& step);
  void publish_stats();

  StepExecutor& executor_;
  cache::PrefixCache& cache_;
  cache::CacheTiers* tiers_;
  scheduler::Scheduler scheduler_;
  int64_t num_layers_;
  std::unordered_map<scheduler::RequestId, std::unique_ptr<RequestState>> generating_;
  std::unordered_map<scheduler::RequestId, std::unique_ptr<ScoreJob>> scoring_;
  std::unordered_map<cache::CacheTiers::LoadId, scheduler::RequestId>
      loading_;                               // requests that are not scheduled yet
  std::vector<std::unique_ptr<Step>> free_;   // steps to fill
  std::deque<std::unique_ptr<Step>> flying_;  // launched, oldest first
  std::vector<int32_t> drawn_;                // of one span
  uint64_t epoch_ = 0;
  EngineStats counts_;  // sums so far

  mutable std::mutex stats_mutex_;  // guards stats_
  EngineStats stats_;
};

}  // namespace deepinfer::engine
