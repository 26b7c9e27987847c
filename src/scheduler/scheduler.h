#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "cache/index_pool.h"
#include "scheduler/batch_plan.h"

namespace deepinfer::scheduler {

struct Limits {
  int64_t num_layers = 0;
  int64_t page_tokens = 0;
  int64_t max_prefill_rows =
      0;                       // prompt rows of a step, >= 1; generating requests add one row each
  int64_t max_logit_rows = 0;  // rows of a step whose logits are wanted, >= max_running
  int64_t max_running = 0;     // requests with a slot

  int64_t max_rows() const { return max_prefill_rows + max_running; }
};

/// Decides what every step computes: first one row for every request that generates, in order of
/// arrival, then prompt rows of the others while the row budget lasts. When pages run out, the
/// youngest request gives its pages back and starts over later (its tokens are kept, so it
/// continues with equal bits). A deterministic function of the calls made; touches no tensor. Owned
/// by the engine thread.
class Scheduler {
 public:
  /// `pages` must outlive the scheduler.
  Scheduler(const Limits& limits, cache::IndexPool& pages);

  /// Queues a request whose sequence starts as `tokens`. `all_logits`: the logits of every prompt
  /// row are wanted (scoring), and nothing is sampled. The caller has checked that fits() holds for
  /// its longest length.
  void add(RequestId request, std::span<const int32_t> tokens, bool all_logits = false);
  /// Whether a request of that many tokens can ever run alone.
  bool fits(int64_t num_tokens) const;
  /// Appends the token drawn from the request's newest row.
  void append(RequestId request, int32_t token);
  /// Ends a request: its slot and pages are free at once. Unknown ids are ignored.
  void remove(RequestId request);

  /// The next step; empty when nothing can run. The caller runs it before planning another.
  BatchPlan plan();

  /// The running request that has `slot`.
  RequestId request_of(int32_t slot) const;
  int64_t num_waiting() const { return static_cast<int64_t>(waiting_.size()); }
  int64_t num_running() const { return static_cast<int64_t>(running_.size()); }
  int64_t num_preemptions() const { return num_preemptions_; }

 private:
  struct State {
    std::vector<int32_t> tokens;  // prompt and output
    bool all_logits = false;
    int64_t computed = 0;     // tokens whose rows have been planned
    int64_t drawn = -1;       // index of the newest token, if the device drew it and still has it
    cache::IndexHandle slot;  // valid while running
    std::vector<cache::IndexHandle> pages;
  };

  struct Budget {
    int64_t rows;
    int64_t logits;
  };

  bool is_running(RequestId request) const;
  /// Whether the request's next row is the one token that was drawn last.
  bool generates(RequestId request) const;
  /// Pages that hold all tokens known of a request.
  int64_t pages_of(const State& state) const;
  void plan_prompt(RequestId request, Budget& budget, BatchPlan& plan);
  /// Gives the first waiting request a slot; false if none waits or it has to wait on.
  bool admit(BatchPlan& plan);
  /// Gives the request pages for its tokens up to `num_tokens`, taking them from younger requests
  /// if need be; false if it had to give up its own.
  bool reserve(RequestId request, int64_t num_tokens, BatchPlan& plan);
  void preempt(RequestId request, BatchPlan& plan);
  void add_span(RequestId request, int64_t num_tokens, BatchPlan& plan) const;
  void lay_out_rows(BatchPlan& plan) const;

  Limits limits_;
  cache::IndexPool& pages_;
  cache::IndexPool slots_;
  std::unordered_map<RequestId, State> states_;
  std::deque<RequestId> waiting_;
  std::vector<RequestId> running_;  // by arrival
  int64_t num_preemptions_ = 0;
};

}  // namespace deepinfer::scheduler
