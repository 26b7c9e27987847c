#include "scheduler/scheduler.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace deepinfer::scheduler {

Scheduler::Scheduler(const Limits& limits, cache::IndexPool& pages)
    : limits_(limits), pages_(pages), slots_(limits.max_running) {
  DEEPINFER_CHECK(limits.max_prefill_rows >= 1 && limits.max_running >= 1 &&
                      limits.max_logit_rows >= limits.max_running,
                  "scheduler limits: {} prompt rows, {} logits, {} running",
                  limits.max_prefill_rows, limits.max_logit_rows, limits.max_running);
}

bool Scheduler::fits(int64_t num_tokens) const {
  return (num_tokens + limits_.page_tokens - 1) / limits_.page_tokens <= pages_.size();
}

void Scheduler::add(RequestId request, std::span<const int32_t> tokens, bool all_logits) {
  DEEPINFER_CHECK(!tokens.empty() && fits(static_cast<int64_t>(tokens.size())),
                  "request {} of {} tokens", request, tokens.size());
  State state;
  state.tokens.assign(tokens.begin(), tokens.end());
  state.all_logits = all_logits;
  const bool inserted = states_.emplace(request, std::move(state)).second;
  DEEPINFER_CHECK(inserted, "request {} added twice", request);
  waiting_.push_back(request);
}

void Scheduler::append(RequestId request, int32_t token) {
  State& state = states_.at(request);
  state.drawn = static_cast<int64_t>(state.tokens.size());
  state.tokens.push_back(token);
}

void Scheduler::remove(RequestId request) {
  if (states_.erase(request) == 0) return;
  std::erase(waiting_, request);
  std::erase(running_, request);
}

RequestId Scheduler::request_of(int32_t slot) const {
  const auto found = std::ranges::find_if(
      running_, [&](RequestId id) { return states_.at(id).slot.index() == slot; });
  DEEPINFER_CHECK(found != running_.end(), "slot {} has no request", slot);
  return *found;
}

BatchPlan Scheduler::plan() {
  BatchPlan plan;
  // reserve() may preempt younger requests; ids that are gone from running_ by then are skipped.
  const std::vector<RequestId> by_arrival = running_;
  int64_t generating = 0;
  for (const RequestId id : by_arrival) {
    if (!is_running(id) || !generates(id)) continue;
    if (reserve(id, states_.at(id).computed + 1, plan)) add_span(id, 1, plan);
    ++generating;
  }
  Budget budget{.rows = limits_.max_prefill_rows, .logits = limits_.max_logit_rows - generating};
  for (const RequestId id : by_arrival) {
    if (is_running(id) && !generates(id)) plan_prompt(id, budget, plan);
  }
  while (budget.rows > 0 && budget.logits > 0 && admit(plan)) {
    plan_prompt(running_.back(), budget, plan);
  }
  lay_out_rows(plan);
  for (const PlanSpan& span : plan.spans) states_.at(span.request).computed += span.num_tokens;
  return plan;
}

bool Scheduler::is_running(RequestId request) const {
  return std::ranges::find(running_, request) != running_.end();
}

bool Scheduler::generates(RequestId request) const {
  const State& state = states_.at(request);
  return state.drawn >= 0 && state.computed == state.drawn;
}

void Scheduler::plan_prompt(RequestId request, Budget& budget, BatchPlan& plan) {
  const State& state = states_.at(request);
  const int64_t open = static_cast<int64_t>(state.tokens.size()) - state.computed;
  const int64_t rows =
      std::min({open, budget.rows, state.all_logits ? budget.logits : budget.rows});
  if (rows <= 0 || budget.logits <= 0) return;
  if (!reserve(request, state.computed + rows, plan)) return;
  add_span(request, rows, plan);
  budget.rows -= rows;
  if (state.all_logits) {
    budget.logits -= rows;
  } else if (plan.spans.back().samples) {
    --budget.logits;
  }
}

int64_t Scheduler::pages_of(const State& state) const {
  return (static_cast<int64_t>(state.tokens.size()) + limits_.page_tokens - 1) /
         limits_.page_tokens;
}

bool Scheduler::admit(BatchPlan& plan) {
  if (waiting_.empty()) return false;
  const RequestId id = waiting_.front();
  State& state = states_.at(id);
  // Enough pages for all that is known, beside what running prompts will still take, so that an
  // admitted prompt does not have to give up half-way.
  int64_t needed = pages_of(state);
  for (const RequestId other : running_) {
    const State& running = states_.at(other);
    needed += pages_of(running) - static_cast<int64_t>(running.pages.size());
  }
  if (needed > pages_.num_free()) return false;
  std::optional<cache::IndexHandle> slot = slots_.allocate();
  if (!slot) return false;
  waiting_.pop_front();
  running_.push_back(id);
  state.slot = std::move(*slot);
  plan.reset_slots.push_back(state.slot.index());
  return true;
}

bool Scheduler::reserve(RequestId request, int64_t num_tokens, BatchPlan& plan) {
  State& state = states_.at(request);
  const auto needed =
      static_cast<size_t>((num_tokens + limits_.page_tokens - 1) / limits_.page_tokens);
  while (state.pages.size() < needed) {
    std::optional<cache::IndexHandle> page = pages_.allocate();
    if (page) {
      plan.pages.push_back({.slot = state.slot.index(),
                            .page = static_cast<int64_t>(state.pages.size()),
                            .page_id = page->index()});
      state.pages.push_back(std::move(*page));
      continue;
    }
    const RequestId youngest = running_.back();
    preempt(youngest, plan);
    if (youngest == request) return false;
  }
  return true;
}

void Scheduler::preempt(RequestId request, BatchPlan& plan) {
  State& state = states_.at(request);
  const int32_t slot = state.slot.index();
  std::erase_if(plan.pages, [&](const PageAssignment& page) { return page.slot == slot; });
  std::erase_if(plan.spans, [&](const PlanSpan& span) { return span.request == request; });
  std::erase(plan.reset_slots, slot);
  state.pages.clear();
  state.slot = cache::IndexHandle();
  state.computed = 0;
  state.drawn = -1;
  std::erase(running_, request);
  waiting_.push_front(request);
  ++num_preemptions_;
}

void Scheduler::add_span(RequestId request, int64_t num_tokens, BatchPlan& plan) const {
  const State& state = states_.at(request);
  const bool reaches_end = state.computed + num_tokens == static_cast<int64_t>(state.tokens.size());
  plan.spans.push_back({.request = request,
                        .slot = state.slot.index(),
                        .first_token = state.computed,
                        .num_tokens = num_tokens,
                        .last_row = -1,
                        .samples = reaches_end && !state.all_logits});
}

/// Rows with logits first (design.md, "Depth per row": all rows of these plans run through all
/// layers).
void Scheduler::lay_out_rows(BatchPlan& plan) const {
  const auto wants_logits = [&](const PlanSpan& span, int64_t i) {
    return states_.at(span.request).all_logits || (span.samples && i == span.num_tokens - 1);
  };
  struct Place {
    size_t span;
    int64_t offset;
  };
  std::vector<Place> order;
  for (const bool logits : {true, false}) {
    for (size_t s = 0; s < plan.spans.size(); ++s) {
      for (int64_t i = 0; i < plan.spans[s].num_tokens; ++i) {
        if (wants_logits(plan.spans[s], i) == logits) order.push_back({s, i});
      }
    }
    if (logits) plan.num_logit_rows = static_cast<int64_t>(order.size());
  }

  std::vector<int32_t> begin(plan.spans.size());
  int32_t next = 0;
  for (size_t s = 0; s < plan.spans.size(); ++s) {
    begin[s] = next;
    next += static_cast<int32_t>(plan.spans[s].num_tokens);
  }
  plan.span_rows.resize(order.size());
  for (size_t row = 0; row < order.size(); ++row) {
    PlanSpan& span = plan.spans[order[row].span];
    const State& state = states_.at(span.request);
    const int64_t index = span.first_token + order[row].offset;
    const bool drawn = index == state.drawn;
    plan.rows.push_back({.slot = span.slot,
                         .offset = static_cast<int32_t>(order[row].offset),
                         .token = drawn ? -1 : state.tokens[static_cast<size_t>(index)],
                         .role = drawn ? ops::RowRole::kDecode : ops::RowRole::kPrefill});
    plan.span_begin.push_back(begin[order[row].span]);
    plan.span_size.push_back(static_cast<int32_t>(span.num_tokens));
    plan.span_rows[static_cast<size_t>(begin[order[row].span] + order[row].offset)] =
        static_cast<int32_t>(row);
    if (order[row].offset == span.num_tokens - 1) span.last_row = static_cast<int32_t>(row);
  }
  plan.rows_at_layer.assign(static_cast<size_t>(limits_.num_layers),
                            static_cast<int64_t>(order.size()));
}

}  // namespace deepinfer::scheduler
