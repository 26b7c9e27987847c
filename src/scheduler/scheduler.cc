#include "scheduler/scheduler.h"

#include <algorithm>

#include "base/error.h"
#include "scheduler/state.h"

namespace deepinfer::scheduler {

Scheduler::Scheduler(const Limits& limits, const cache::RestartRules& rules,
                     cache::PrefixCache& cache)
    : limits_(limits),
      rules_(rules),
      cache_(cache),
      slots_(limits.max_running),
      by_slot_(static_cast<size_t>(limits.max_running)) {
  DEEPINFER_CHECK(limits.max_prefill_rows >= 1 && limits.max_running >= 1 &&
                      limits.max_score_rows >= 1 && limits.max_verify_rows >= 1,
                  "scheduler limits: {} prompt rows, {} scored, {} running, {} to verify",
                  limits.max_prefill_rows, limits.max_score_rows, limits.max_running,
                  limits.max_verify_rows);
  DEEPINFER_CHECK(rules.page_tokens > 0, "pages of {} tokens", rules.page_tokens);
  running_.reserve(by_slot_.size());
  order_.reserve(by_slot_.size());
  row_place_.reserve(static_cast<size_t>(limits.max_rows()));
}

Scheduler::~Scheduler() = default;

bool Scheduler::fits(int64_t num_tokens) const {
  return pages_of(num_tokens) <= cache_.size();
}

void Scheduler::add(RequestId request, const RequestSpec& spec) {
  const auto count = static_cast<int64_t>(spec.tokens.size());
  DEEPINFER_CHECK(count >= 1 && fits(std::max(count, spec.max_tokens)),
                  "request {} of {} to {} tokens", request, count, spec.max_tokens);
  int32_t handle = 0;
  if (free_handles_.empty()) {
    handle = static_cast<int32_t>(states_.size());
    states_.emplace_back();
  } else {
    handle = free_handles_.back();
    free_handles_.pop_back();
  }
  const bool inserted = handles_.emplace(request, handle).second;
  DEEPINFER_CHECK(inserted, "request {} added twice", request);
  auto state = std::make_unique<State>();
  state->id = request;
  state->handle = handle;
  state->key = {step_ - spec.priority * kAgingSteps, ++arrivals_};
  state->priority = spec.priority;
  state->tokens.assign(spec.tokens.begin(), spec.tokens.end());
  state->salt = spec.salt;
  state->prompt = count;
  state->max_tokens = spec.max_tokens;
  state->score = spec.score;
  waiting_.emplace(state->key, state.get());
  states_[static_cast<size_t>(handle)] = std::move(state);
}

void Scheduler::set_drafts(RequestId request, int64_t drafts) {
  DEEPINFER_CHECK(drafts >= 0 && drafts < limits_.max_verify_rows, "{} drafts, at most {}", drafts,
                  limits_.max_verify_rows - 1);
  states_[static_cast<size_t>(handles_.at(request))]->drafts = drafts;
}

void Scheduler::remove(RequestId request) {
  const auto found = handles_.find(request);
  if (found == handles_.end()) return;
  State& state = *states_[static_cast<size_t>(found->second)];
  switch (state.phase) {
    case State::Phase::kWaiting:
      waiting_.erase(state.key);
      state.requeue = false;
      release(state);
      break;
    case State::Phase::kRunning:
      leave(state, /*requeue=*/false);
      break;
    case State::Phase::kLeaving:
      state.requeue = false;
      break;
  }
}

RequestId Scheduler::request_of(int32_t slot) const {
  const State* state = by_slot_[static_cast<size_t>(slot)];
  DEEPINFER_CHECK(state != nullptr, "slot {} has no request", slot);
  return state->id;
}

int64_t Scheduler::cached_tokens(RequestId request) const {
  return states_[static_cast<size_t>(handles_.at(request))]->cached;
}

bool Scheduler::runs_alone(RequestId request) const {
  const auto found = handles_.find(request);
  return found != handles_.end() && states_[static_cast<size_t>(found->second)]->alone_until > 0;
}

void Scheduler::plan(BatchPlan& plan) {
  plan.clear();
  ++step_;
  int64_t prefill_budget = limits_.max_prefill_rows;
  int64_t score_budget = limits_.max_score_rows;
  order_.assign(running_.begin(), running_.end());
  if (num_alone_ > 0) {
    const auto alone =
        std::ranges::find_if(order_, [](const State* state) { return state->alone_until > 0; });
    if (alone != order_.end()) {
      plan_request(**alone, prefill_budget, score_budget, plan);
      lay_out(plan);
      return;
    }
  }
  for (State* state : order_) {
    // Those behind may have been preempted by those before.
    if (state->phase == State::Phase::kRunning) {
      plan_request(*state, prefill_budget, score_budget, plan);
    }
  }
  while (prefill_budget > 0 && admit(plan)) {
    State& state = *by_slot_[static_cast<size_t>(plan.starts.back().slot)];
    const bool alone = state.alone_until > 0;
    if (!alone || plan.spans.empty()) plan_request(state, prefill_budget, score_budget, plan);
    if (alone) break;
  }
  lay_out(plan);
}

int64_t Scheduler::wanted_rows(const State& state) const {
  if (!state.generates()) return state.known - state.planned;
  if (state.score) return 0;
  // The last token of the sequence is drawn, not computed.
  if (state.least_committed() + 1 >= state.max_tokens) return 0;
  return std::min(1 + state.drafts, state.max_tokens - 1 - state.most_committed());
}

int64_t Scheduler::chunk_limit(const State& state) const {
  if (state.score) return state.known;
  return cache::next_snapshot(rules_, state.planned, state.known).value_or(state.known);
}

void Scheduler::plan_request(State& state, int64_t& prefill_budget, int64_t& score_budget,
                             BatchPlan& plan) {
  int64_t rows = wanted_rows(state);
  if (!state.generates()) {
    rows = std::min({rows, prefill_budget, chunk_limit(state) - state.planned});
    if (state.score) rows = std::min(rows, score_budget);
  }
  if (rows <= 0) return;
  if (!reserve(state, state.most_committed() + rows, plan)) return;
  if (!state.generates()) {
    prefill_budget -= rows;
    if (state.score) score_budget -= rows;
  }
  add_span(state, rows, plan);
  plan_saves(state, plan);
}

void Scheduler::add_span(State& state, int64_t rows, BatchPlan& plan) {
  const bool generates = state.generates();
  const int64_t first = state.most_committed();
  const bool samples = !state.score && first + rows >= state.known;
  plan.spans.push_back(
      {.request = state.id,
       .handle = state.handle,
       .slot = state.slot.index(),
       .first_token = first,
       .num_tokens = rows,
       .num_logits = state.score || generates ? rows : (samples ? 1 : 0),
       .first_logit = -1,
       .last_row = -1,
       .samples = samples,
       .generates = generates,
       .num_replayed = std::clamp<int64_t>(state.restart.hit_tokens - first, 0, rows)});
  state.last_step = step_;
  ++state.spans_planned;
  if (generates) {
    ++state.generating_spans;
    state.generating_rows += rows;
  } else {
    state.planned += rows;
  }
}

/// Rings are kept where a later request may start: at the places of cache::next_snapshot in a
/// prompt, and at the newest page boundary of a response.
void Scheduler::plan_saves(State& state, BatchPlan& plan) {
  if (!rules_.takes_snapshots || state.score) return;
  if (!state.generates()) {
    const int64_t before = state.planned - plan.spans.back().num_tokens;
    if (cache::next_snapshot(rules_, before, state.known) == state.planned) {
      save(state, state.planned, /*rolling=*/false, plan);
    }
    return;
  }
  const int64_t boundary = state.least_committed() / rules_.page_tokens * rules_.page_tokens;
  // The rings must still hold the window before it when everything in flight has been written.
  const bool in_ring = state.most_committed() - boundary <= limits_.ring_slack;
  if (boundary >= state.known && boundary > state.last_save && in_ring) {
    save(state, boundary, /*rolling=*/true, plan);
  }
}

void Scheduler::save(State& state, int64_t num_tokens, bool rolling, BatchPlan& plan) {
  state.last_save = num_tokens;
  const std::optional<cache::SnapshotInfo> info =
      cache::snapshot_info(rules_, state.restart, state.restart_request(), num_tokens);
  if (!info) return;
  std::optional<cache::SnapshotRef> snapshot = cache_.snapshots().acquire(*info);
  if (!snapshot) return;  // all of them are held: this one is not worth waiting for
  plan.saves.push_back({.slot = state.slot.index(),
                        .num_tokens = num_tokens,
                        .encoder_unit = cache_.snapshots().encoder_unit(*snapshot),
                        .decoder_unit = cache_.snapshots().decoder_unit(*snapshot)});
  state.saves.push_back({.snapshot = std::move(*snapshot),
                         .num_tokens = num_tokens,
                         .after_span = state.spans_planned,
                         .rolling = rolling});
}

bool Scheduler::land(const PlanSpan& span, std::span<const int32_t> drawn) {
  State& state = *states_[static_cast<size_t>(span.handle)];
  ++state.spans_landed;
  state.restart.snapshot = cache::SnapshotRef();  // its rings are in the slot
  if (span.generates) {
    --state.generating_spans;
    state.generating_rows -= span.num_tokens;
    state.generated += static_cast<int64_t>(drawn.size());
    state.committed += static_cast<int64_t>(drawn.size());
  } else {
    state.committed = span.first_token + span.num_tokens;
  }
  state.tokens.insert(state.tokens.end(), drawn.begin(), drawn.end());
  publish(state);
  if (state.alone_until > 0 && state.committed >= state.alone_until) {
    state.alone_until = 0;
    --num_alone_;
  }
  const bool alive = state.phase != State::Phase::kLeaving || state.requeue;
  if (state.phase == State::Phase::kLeaving && state.in_flight() == 0) release(state);
  return alive;
}

void Scheduler::fail(const BatchPlan& plan, bool alone) {
  for (const PlanSpan& span : plan.spans) {
    State& state = *states_[static_cast<size_t>(span.handle)];
    ++state.spans_landed;
    if (alone) {
      if (state.alone_until == 0) ++num_alone_;
      state.alone_until = std::max(state.alone_until, span.first_token + span.num_tokens);
    }
    if (state.phase == State::Phase::kRunning) {
      leave(state, /*requeue=*/true);
    } else if (state.in_flight() == 0) {
      release(state);
    }
  }
  // A start without rows in the plan has not happened either.
  for (const SlotStart& start : plan.starts) {
    State* state = by_slot_[static_cast<size_t>(start.slot)];
    if (state != nullptr && state->phase == State::Phase::kRunning) leave(*state, /*requeue=*/true);
  }
}

/// Makes complete pages, and the rings kept at their ends, findable.
void Scheduler::publish(State& state) {
  const auto page_tokens = static_cast<size_t>(rules_.page_tokens);
  const auto attach = [&] {
    const int64_t end = state.published * rules_.page_tokens;
    std::erase_if(state.saves, [&](const State::PendingSave& save) {
      if (save.num_tokens != end || save.after_span > state.spans_landed) return false;
      const bool is_new = !cache_.snapshot_at(state.parent).has_value();
      cache_.attach(state.parent, save.snapshot);
      if (save.rolling) {
        cache_.drop_snapshot(state.rolling_page);
        state.rolling_page = is_new ? state.parent : cache::PageRef();
      }
      return true;
    });
  };
  attach();
  while ((state.published + 1) * rules_.page_tokens <= state.committed) {
    const auto page = static_cast<size_t>(state.published);
    state.parent = cache_.insert(state.parent, state.salt,
                                 std::span(state.tokens).subspan(page * page_tokens, page_tokens),
                                 state.pages[page]);
    ++state.published;
    attach();
  }
}

}  // namespace deepinfer::scheduler
