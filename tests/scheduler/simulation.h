#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/scheduler.h"

namespace deepinfer::scheduler {

/// What a simulated request is and how far it has come.
struct SimulatedRequest {
  std::vector<int32_t> tokens;  // prompt, then what was delivered
  int64_t prompt = 0;
  int64_t end = 0;  // ends with so many tokens
  bool score = false;
  int64_t drafts = 0;
  std::string salt = {};
  uint64_t stream = 0;  // what its output tokens derive from
  int64_t arrival = 0;  // step
  int64_t priority = 0;
};

/// A device without a model. It carries plans out when they are launched, in order, and keeps what
/// they give back until they are landed, up to `depth` steps later. It knows what every page and
/// slot really holds, and fails the test when a row could not have been computed from that.
class SimulatedDevice {
 public:
  explicit SimulatedDevice(uint64_t seed, int64_t page_tokens, int64_t num_pages);

  /// The token at a place of a sequence's output: what the model would draw.
  static int32_t draw(const SimulatedRequest& request, int64_t index) {
    return static_cast<int32_t>((request.stream * 0x9E3779B97F4A7C15ULL +
                                 static_cast<uint64_t>(index) * 0xBF58476D1CE4E5B9ULL) >>
                                40) &
           0xFFFF;
  }

  /// Runs a plan; returns the tokens drawn per span.
  std::vector<std::vector<int32_t>> run(const BatchPlan& plan,
                                        const std::map<RequestId, SimulatedRequest>& requests);

 private:
  struct Slot {
    RequestId request = 0;
    int64_t committed = 0;
    std::vector<int32_t> tokens;  // of the sequence as the device knows it, newest drawn included
    std::vector<int32_t> pages;
  };
  /// Hash of a salt and the first `count` tokens: what the page entry of token count-1 must hold.
  static std::vector<uint64_t> prefix_hashes(const Slot& slot, const std::string& salt);
  void run_span(const BatchPlan& plan, const PlanSpan& span, const SimulatedRequest& request,
                std::vector<int32_t>& drawn);

  std::mt19937_64 random_;
  int64_t page_tokens_;
  std::map<int32_t, Slot> slots_;
  std::vector<std::vector<uint64_t>> entries_;  // [page][token] hash of the prefix it was made from
};

/// Requests, a scheduler and a device, with `depth` plans under way.
class Simulation {
 public:
  struct Options {
    Limits limits;
    cache::RestartRules rules;
    int64_t num_pages = 0;
    int64_t num_snapshot_units = 8;
    size_t depth = 2;
    uint64_t seed = 1;
    double fault_rate = 0;  // of steps
  };
  explicit Simulation(const Options& options);

  RequestId add(SimulatedRequest request);
  void cancel(RequestId id);
  /// Plans and launches a step, then lands the oldest if enough are under way.
  void step();
  /// Steps until every request has ended.
  void finish(int64_t max_steps);

  bool idle() const { return requests_.empty() && flying_.empty(); }
  const Scheduler& scheduler() const { return scheduler_; }
  Scheduler& scheduler() { return scheduler_; }
  const cache::PrefixCache& cache() const { return cache_; }
  const std::vector<RequestId>& finished() const { return finished_; }
  int64_t num_faults() const { return num_faults_; }
  /// A hash of every plan so far.
  uint64_t trace() const { return trace_; }
  /// The most steps that a request took from when it was first by key until it ended or another
  /// one came before it.
  int64_t longest_as_first() const { return longest_as_first_; }
  /// The most rows a generating request had in one step.
  int64_t most_verified() const { return most_verified_; }

 private:
  /// The order in which requests are served: step of arrival, moved by priority; then number.
  using Key = std::pair<int64_t, RequestId>;
  static Key key_of(RequestId id, const SimulatedRequest& request) {
    return {request.arrival - request.priority * Scheduler::kAgingSteps, id};
  }
  struct Flight {
    BatchPlan plan;
    std::vector<std::vector<int32_t>> drawn;
    bool failed = false;
  };
  void launch();
  void land();
  void check_plan(const BatchPlan& plan);
  void check_spans(const BatchPlan& plan);
  void check_order(const BatchPlan& plan);
  void watch_first();
  void check_totals() const;

  Options options_;
  cache::PrefixCache cache_;
  Scheduler scheduler_;
  SimulatedDevice device_;
  std::mt19937_64 random_;
  std::map<RequestId, SimulatedRequest> requests_;
  std::map<RequestId, SimulatedRequest> known_;  // ended ones, too, while steps may name them
  std::deque<std::unique_ptr<Flight>> flying_;
  std::vector<RequestId> finished_;
  RequestId next_ = 1;
  int64_t now_ = 0;
  std::set<Key> unstarted_;  // requests that have never had a slot
  std::set<Key> living_;
  std::optional<Key> first_;  // of living_, since first_since_
  int64_t first_since_ = 0;
  int64_t longest_as_first_ = 0;
  int64_t most_verified_ = 0;
  int64_t num_faults_ = 0;
  uint64_t trace_ = 0;
};

}  // namespace deepinfer::scheduler
