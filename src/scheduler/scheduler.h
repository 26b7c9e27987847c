#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cache/index_pool.h"
#include "cache/prefix_cache.h"
#include "cache/restart.h"
#include "scheduler/batch_plan.h"

namespace deepinfer::scheduler {

struct Limits {
  int64_t max_prefill_rows = 0;  // prompt rows of a step, >= 1; generating requests add theirs
  int64_t max_score_rows = 1;    // prompt rows of a step that are scored, >= 1
  int64_t max_running = 0;       // requests with a slot
  int64_t max_verify_rows = 1;   // rows of a generating request: 1 and its drafts
  int64_t ring_slack = 0;        // positions that a ring holds beyond the window
  int64_t history = 0;           // tokens that a slot remembers (Engram's n-gram less one)

  int64_t max_generating_rows() const { return max_running * max_verify_rows; }
  int64_t max_rows() const { return max_prefill_rows + max_generating_rows(); }
  int64_t max_logit_rows() const { return max_score_rows + max_generating_rows(); }
};

/// A request as the scheduler sees it.
struct RequestSpec {
  std::span<const int32_t> tokens;  // the prompt
  int64_t max_tokens = 0;           // the sequence ends with so many tokens, output included
  int32_t priority = 0;             // higher ones go first, see Scheduler::kAgingSteps
  bool score = false;               // the logits of every prompt row are wanted; nothing is drawn
  std::string_view salt = {};       // only requests of equal salts share cached pages
};

/// Decides what every step computes. Requests are served in the order of arrival, priorities
/// moving them forward: one row (or one verification) for each that generates, prompt rows of the
/// others while the row budget lasts, then waiting requests while slots and pages last. When pages
/// run out, the last in that order gives its pages back and starts over later; its tokens are kept
/// and its pages stay cached, so it continues with equal bits.
///
/// Steps overlap: plan() may be called while earlier plans still run, because it needs no drawn
/// token, only upper bounds of lengths. Every plan ends in land() or fail(), in the order of
/// planning. A request's slot and pages are given back only when none of its steps is in flight.
///
/// A deterministic function of the calls made; touches no tensor. Owned by the engine thread.
class Scheduler {
 public:
  /// How many steps earlier a request counts as having arrived per unit of priority. Since waiting
  /// counts for all alike, whoever arrives much later goes behind even with a high priority: nobody
  /// starves.
  static constexpr int64_t kAgingSteps = 1024;

  /// `cache` must outlive the scheduler.
  Scheduler(const Limits& limits, const cache::RestartRules& rules, cache::PrefixCache& cache);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  /// Queues a request. The caller has checked that fits() holds for its longest length.
  void add(RequestId request, const RequestSpec& spec);
  /// Whether a request of that many tokens can ever run alone.
  bool fits(int64_t num_tokens) const;
  /// How many drafts the request's next steps verify, at most Limits::max_verify_rows - 1.
  void set_drafts(RequestId request, int64_t drafts);
  /// Ends a request; nothing of it is planned any more. Unknown ids are ignored.
  void remove(RequestId request);

  /// Fills `plan` with the next step (which may only begin slots); leaves it empty when nothing can
  /// run before an earlier step has landed. The caller launches it before planning another.
  void plan(BatchPlan& plan);
  /// The results of a span of the oldest plan: the tokens drawn from it (for a verification: those
  /// accepted and the one after them). Publishes what is complete. False if the request is gone.
  bool land(const PlanSpan& span, std::span<const int32_t> drawn);
  /// The oldest plan was not computed, or only in part: its requests start over. `alone`: each of
  /// them then runs in steps of its own until it is past this one, so that a fault that belongs to
  /// one request ends only that.
  void fail(const BatchPlan& plan, bool alone);

  /// The running request that has `slot`.
  RequestId request_of(int32_t slot) const;
  /// Tokens of a request that no layer had to compute, as of its last start.
  int64_t cached_tokens(RequestId request) const;
  /// Whether the request runs in steps of its own after a fault, see fail().
  bool runs_alone(RequestId request) const;

  int64_t num_waiting() const { return static_cast<int64_t>(waiting_.size()); }
  int64_t num_running() const { return static_cast<int64_t>(running_.size()); }
  /// Requests that are queued, run, or whose last step is still in flight.
  int64_t num_requests() const { return static_cast<int64_t>(handles_.size()); }
  int64_t num_preemptions() const { return num_preemptions_; }
  /// Prompt tokens of all starts, and those of them that no layer had to compute.
  int64_t num_prompt_tokens() const { return num_prompt_tokens_; }
  int64_t num_cached_tokens() const { return num_cached_tokens_; }

 private:
  struct Run;
  struct State;
  using Key = std::pair<int64_t, uint64_t>;  // virtual arrival, then real

  /// Rows of `state` in the next step: what it wants, before budgets and pages.
  int64_t wanted_rows(const State& state) const;
  void plan_request(State& state, int64_t& prefill_budget, int64_t& score_budget, BatchPlan& plan);
  void add_span(State& state, int64_t rows, BatchPlan& plan);
  void plan_saves(State& state, BatchPlan& plan);
  void save(State& state, int64_t num_tokens, bool rolling, BatchPlan& plan);
  /// Where a prompt's next chunk must end at the latest, so that rings can be kept there.
  int64_t chunk_limit(const State& state) const;

  /// Starts the first waiting request; false if none waits or it has to wait on.
  bool admit(BatchPlan& plan);
  void make_room_for(const State& state);
  void begin(State& state, cache::PrefixCache::Match match, BatchPlan& plan);
  int64_t pages_of(int64_t num_tokens) const {
    return (num_tokens + rules_.page_tokens - 1) / rules_.page_tokens;
  }
  int64_t available_pages() const { return cache_.num_free() + cache_.num_cached(); }
  /// Gives the request so many pages, all or none.
  bool take_pages(State& state, int64_t num_pages, BatchPlan& plan);
  /// Gives the request pages for its tokens up to `num_tokens`, preempting those behind it if need
  /// be; false if it has to wait or had to give up its own.
  bool reserve(State& state, int64_t num_tokens, BatchPlan& plan);
  /// Takes slot and pages from a running request, at once or when its last step has landed.
  void leave(State& state, bool requeue);
  void release(State& state);
  void preempt(State& state);

  void publish(State& state);
  void lay_out(BatchPlan& plan);

  Limits limits_;
  cache::RestartRules rules_;
  cache::PrefixCache& cache_;
  cache::IndexPool slots_;
  std::vector<std::unique_ptr<State>> states_;  // by handle
  std::vector<int32_t> free_handles_;
  std::unordered_map<RequestId, int32_t> handles_;
  std::map<Key, State*> waiting_;
  std::vector<State*> running_;  // by key; those that leave are not in it
  std::vector<State*> by_slot_;
  std::vector<State*> order_;         // of one plan
  std::vector<int32_t> row_buckets_;  // of one plan
  std::vector<int32_t> row_place_;    // of one plan: bucket of every row
  int64_t step_ = 0;
  uint64_t arrivals_ = 0;
  int64_t leaving_pages_ = 0;  // held by requests that leave
  int64_t num_alone_ = 0;      // requests that run alone
  int64_t num_preemptions_ = 0;
  int64_t num_prompt_tokens_ = 0;
  int64_t num_cached_tokens_ = 0;
};

}  // namespace deepinfer::scheduler
