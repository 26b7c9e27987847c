#pragma once

#include <string>
#include <vector>

#include "scheduler/scheduler.h"

namespace deepinfer::scheduler {

/// What belongs to one start of a request and is forgotten by preemption.
struct Scheduler::Run {
  cache::IndexHandle slot;
  std::vector<cache::PageRef> pages;
  cache::Restart restart;        // where it starts, and how deep its rows run
  int64_t known = 0;             // tokens computed as a prompt
  int64_t planned = 0;           // of `known`: the next prompt row
  int64_t committed = 0;         // landed
  int64_t generated = 0;         // tokens drawn from landed rows of drawn tokens
  int64_t generating_spans = 0;  // in flight
  int64_t generating_rows = 0;
  int64_t spans_planned = 0;
  int64_t spans_landed = 0;

  struct PendingSave {
    cache::SnapshotRef snapshot;
    int64_t num_tokens;
    int64_t after_span;  // number of the span whose landing makes it valid
    bool rolling;        // replaces the last rolling one: rings of the newest page boundary
  };
  cache::PageRef parent;  // the last published page
  int64_t published = 0;  // pages
  int64_t last_save = 0;  // boundary of the newest save
  std::vector<PendingSave> saves;
  cache::PageRef rolling_page;

  int64_t in_flight() const { return spans_planned - spans_landed; }
  bool generates() const { return planned == known; }
  /// Committed tokens once everything in flight has landed, at least and at most.
  int64_t least_committed() const { return planned + generated + generating_spans; }
  int64_t most_committed() const { return planned + generated + generating_rows; }
};

struct Scheduler::State : Scheduler::Run {
  enum class Phase {
    kWaiting,
    kRunning,
    kLeaving,  // ended or preempted; slot and pages stay until its last step has landed
  };

  RequestId id = 0;
  int32_t handle = -1;
  Key key;
  int32_t priority = 0;
  std::vector<int32_t> tokens;  // prompt and landed output
  std::string salt;
  int64_t prompt = 0;
  int64_t max_tokens = 0;
  bool score = false;
  int64_t drafts = 0;
  Phase phase = Phase::kWaiting;
  bool requeue = false;        // of a leaving request: it was preempted
  int64_t alone_until = 0;     // runs alone until so many tokens are committed; 0: does not
  int64_t blocked_pages = -1;  // pages that were available when it last found too few
  int64_t cached = 0;          // see Scheduler::cached_tokens
  int64_t last_step = -1;      // the newest plan that has something of it

  cache::RestartRequest restart_request() const {
    return {.num_tokens = known, .prompt_tokens = prompt, .all_logits = score};
  }
};

}  // namespace deepinfer::scheduler
