#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "cache/index_pool.h"
#include "engine/request_state.h"
#include "engine/runner.h"
#include "engine/scoring.h"
#include "scheduler/scheduler.h"

namespace deepinfer::engine {

/// The requests that wait and run, and the steps that compute them. All members belong to the
/// engine thread, except stats().
class StepLoop {
 public:
  /// `runner` and `pages` must outlive the loop.
  StepLoop(Runner& runner, cache::IndexPool& pages, const scheduler::Limits& limits);

  void start(scheduler::RequestId id, std::unique_ptr<RequestState> request);
  void start(scheduler::RequestId id, std::unique_ptr<ScoreJob> job);
  /// Ends a request that still runs with kCancelled. Unknown ids are ignored.
  void cancel(scheduler::RequestId id);
  /// Ends everything, with kCancelled or, if there is a reason, with kError. Throws nothing.
  void end_all(const std::string& error = "") noexcept;

  bool idle() const { return generating_.empty() && scoring_.empty(); }
  /// Plans and computes one step. A request whose computation fails (a damaged table, no memory)
  /// ends with kError; the others of the step go on.
  void step();

  /// A snapshot after the last step. Any thread.
  EngineStats stats() const;

 private:
  std::vector<GeneratedToken> compute(const scheduler::BatchPlan& plan);
  void compute_alone(const scheduler::BatchPlan& plan);
  void reset_slots(const scheduler::BatchPlan& plan);
  std::vector<RowRequest> row_requests(const scheduler::BatchPlan& plan) const;
  RowRequest generating_row(const RequestState& request) const;
  void deliver(const scheduler::BatchPlan& plan, std::vector<GeneratedToken> tokens);
  void fail_request(scheduler::RequestId id, const std::exception& error);
  void publish_stats(int64_t rows);

  Runner& runner_;
  cache::IndexPool& pages_;
  scheduler::Scheduler scheduler_;
  std::unordered_map<scheduler::RequestId, std::unique_ptr<RequestState>> generating_;
  std::unordered_map<scheduler::RequestId, std::unique_ptr<ScoreJob>> scoring_;

  mutable std::mutex stats_mutex_;  // guards stats_
  EngineStats stats_;
};

}  // namespace deepinfer::engine
