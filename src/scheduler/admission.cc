#include <algorithm>
#include <optional>

#include "base/error.h"
#include "scheduler/scheduler.h"
#include "scheduler/state.h"

// Who gets slots and pages, and who has to give them back.
namespace deepinfer::scheduler {

bool Scheduler::admit(BatchPlan& plan) {
  if (waiting_.empty()) return false;
  State& state = *waiting_.begin()->second;
  if (slots_.num_free() == 0) {
    make_room_for(state);
    return false;
  }
  if (available_pages() <= state.blocked_pages && num_requests() > num_waiting()) return false;
  const auto known = static_cast<int64_t>(state.tokens.size());
  cache::PrefixCache::Match match;
  const int64_t available = available_pages();
  if (!state.score) {
    match = cache_.lookup(std::span(state.tokens).first(state.tokens.size() - 1), state.salt);
  }
  // Enough pages for all that is known, beside what running prompts will still take, so that an
  // admitted prompt does not have to give up half-way.
  int64_t needed = pages_of(known) - static_cast<int64_t>(match.pages.size());
  for (const State* running : running_) {
    needed += std::max<int64_t>(
        pages_of(running->known) - static_cast<int64_t>(running->pages.size()), 0);
  }
  if (needed > available_pages()) {
    state.blocked_pages = available;
    make_room_for(state);
    return false;
  }
  state.blocked_pages = -1;
  waiting_.erase(waiting_.begin());
  state.known = known;
  begin(state, std::move(match), plan);
  return true;
}

/// A waiting request of higher priority than the last running one takes its place.
void Scheduler::make_room_for(const State& state) {
  if (running_.empty()) return;
  State& last = *running_.back();
  if (last.priority < state.priority && last.key > state.key && leaving_pages_ == 0) preempt(last);
}

void Scheduler::begin(State& state, cache::PrefixCache::Match match, BatchPlan& plan) {
  state.restart = cache::plan_restart(rules_, cache_.snapshots(), match, state.restart_request());
  const cache::SnapshotRef& snapshot = state.restart.snapshot;
  SlotStart start{.request = state.id,
                  .slot = -1,
                  .position = state.restart.start,
                  .encoder_unit = -1,
                  .decoder_unit = -1,
                  .decoder_floor = rules_.keep_tokens > 0
                                       ? std::max<int64_t>(state.prompt - rules_.keep_tokens, 0)
                                       : 0};
  if (snapshot) start.encoder_unit = cache_.snapshots().encoder_unit(snapshot);
  if (state.restart.restores_decoder) {
    start.decoder_unit = cache_.snapshots().decoder_unit(snapshot);
  }
  state.planned = state.committed = state.last_save = start.position;
  state.pages = std::move(match.pages);
  state.published = static_cast<int64_t>(state.pages.size());
  if (!state.pages.empty()) state.parent = state.pages.back();
  state.cached = std::min(start.position, state.restart.hit_tokens);
  num_prompt_tokens_ += state.known;
  num_cached_tokens_ += state.cached;

  state.slot = std::move(*slots_.allocate());
  state.phase = State::Phase::kRunning;
  state.last_step = step_;
  start.slot = state.slot.index();
  by_slot_[static_cast<size_t>(start.slot)] = &state;
  const auto place = std::ranges::upper_bound(running_, state.key, {}, &State::key);
  running_.insert(place, &state);
  plan.starts.push_back(start);
  for (int64_t back = limits_.history; back >= 1; --back) {
    const int64_t at = start.position - back;
    plan.history.push_back(at >= 0 ? state.tokens[static_cast<size_t>(at)] : -1);
  }
  for (size_t i = 0; i < state.pages.size(); ++i) {
    plan.pages.push_back(
        {.slot = start.slot, .page = static_cast<int64_t>(i), .page_id = state.pages[i].index()});
  }
}

bool Scheduler::take_pages(State& state, int64_t num_pages, BatchPlan& plan) {
  const size_t before = state.pages.size();
  while (static_cast<int64_t>(state.pages.size()) < num_pages) {
    std::optional<cache::PageRef> page = cache_.acquire();
    if (!page) {
      plan.pages.resize(plan.pages.size() - (state.pages.size() - before));
      state.pages.resize(before);
      return false;
    }
    plan.pages.push_back({.slot = state.slot.index(),
                          .page = static_cast<int64_t>(state.pages.size()),
                          .page_id = page->index()});
    state.pages.push_back(std::move(*page));
  }
  return true;
}

bool Scheduler::reserve(State& state, int64_t num_tokens, BatchPlan& plan) {
  while (!take_pages(state, pages_of(num_tokens), plan)) {
    // Pages of requests that leave come back when their last step has landed.
    if (leaving_pages_ > 0) return false;
    State& last = *running_.back();
    if (last.last_step == step_) return false;  // the plan counts on it: in the next one
    preempt(last);
    if (&last == &state) return false;
  }
  return true;
}

void Scheduler::preempt(State& state) {
  ++num_preemptions_;
  leave(state, /*requeue=*/true);
}

void Scheduler::leave(State& state, bool requeue) {
  std::erase(running_, &state);
  state.phase = State::Phase::kLeaving;
  state.requeue = requeue;
  leaving_pages_ += static_cast<int64_t>(state.pages.size());
  if (state.in_flight() == 0) release(state);
}

void Scheduler::release(State& state) {
  if (state.phase == State::Phase::kLeaving) {
    leaving_pages_ -= static_cast<int64_t>(state.pages.size());
    by_slot_[static_cast<size_t>(state.slot.index())] = nullptr;
  }
  if (!state.requeue) {
    if (state.alone_until > 0) --num_alone_;
    handles_.erase(state.id);
    free_handles_.push_back(state.handle);
    states_[static_cast<size_t>(state.handle)].reset();
    return;
  }
  static_cast<Run&>(state) = Run();
  state.phase = State::Phase::kWaiting;
  waiting_.emplace(state.key, &state);
}

}  // namespace deepinfer::scheduler
