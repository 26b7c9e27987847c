#include "tests/scheduler/simulation.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/hash.h"

namespace deepinfer::scheduler {
namespace {

uint64_t mix(uint64_t hash, uint64_t value) {
  return (hash ^ (value + 0x9E3779B97F4A7C15ULL)) * 0xBF58476D1CE4E5B9ULL;
}

}  // namespace

SimulatedDevice::SimulatedDevice(uint64_t seed, int64_t page_tokens, int64_t num_pages)
    : random_(seed),
      page_tokens_(page_tokens),
      entries_(static_cast<size_t>(num_pages),
               std::vector<uint64_t>(static_cast<size_t>(page_tokens))) {}

std::vector<uint64_t> SimulatedDevice::prefix_hashes(const Slot& slot, const std::string& salt) {
  std::vector<uint64_t> hashes;
  uint64_t hash = hash64(std::as_bytes(std::span(salt)));
  for (const int32_t token : slot.tokens) {
    hash = mix(hash, static_cast<uint64_t>(token));
    hashes.push_back(hash);
  }
  return hashes;
}

void SimulatedDevice::run_span(const BatchPlan& plan, const PlanSpan& span,
                               const SimulatedRequest& request, std::vector<int32_t>& drawn) {
  Slot& slot = slots_.at(span.slot);
  ASSERT_EQ(slot.request, span.request);
  const int64_t first = slot.committed;
  if (!span.generates) {
    ASSERT_EQ(first, span.first_token);
  }
  const auto last = static_cast<size_t>(span.last_row);
  // Rows of a prompt bring their tokens, others only what the device has drawn before.
  for (int64_t i = 0; i < span.num_tokens; ++i) {
    const auto begin = static_cast<size_t>(plan.span_begin[last]);
    const auto& row =
        plan.rows[static_cast<size_t>(plan.span_rows[begin + static_cast<size_t>(i)])];
    ASSERT_EQ(row.slot, span.slot);
    ASSERT_EQ(row.offset, i);
    ASSERT_EQ(row.role == ops::RowRole::kReplay, i < span.num_replayed);
    const auto at = static_cast<size_t>(first + i);
    if (span.generates) {
      ASSERT_EQ(row.token, -1);
      ASSERT_LT(first, static_cast<int64_t>(slot.tokens.size())) << "nothing was drawn";
      continue;
    }
    if (slot.tokens.size() <= at) slot.tokens.resize(at + 1, -1);
    slot.tokens[at] = row.token;
    ASSERT_EQ(row.token, at < static_cast<size_t>(request.prompt)
                             ? request.tokens[at]
                             : draw(request, static_cast<int64_t>(at)));
  }
  int64_t accepted = span.num_tokens;
  if (span.generates) {
    accepted = 1 + static_cast<int64_t>(random_() % static_cast<uint64_t>(span.num_tokens));
    // Accepted drafts are the tokens that follow.
    slot.tokens.resize(static_cast<size_t>(first + 1));
    for (int64_t i = 1; i < span.num_tokens; ++i) slot.tokens.push_back(draw(request, first + i));
  }
  const std::vector<uint64_t> hashes = prefix_hashes(slot, request.salt);
  for (int64_t t = 0; t < first + span.num_tokens; ++t) {
    const auto page = static_cast<size_t>(t / page_tokens_);
    ASSERT_LT(page, slot.pages.size()) << "token " << t << " of request " << span.request;
    auto& entry =
        entries_[static_cast<size_t>(slot.pages[page])][static_cast<size_t>(t % page_tokens_)];
    const bool is_new = t >= first + span.num_replayed;
    if (is_new) entry = hashes[static_cast<size_t>(t)];
    ASSERT_EQ(entry, hashes[static_cast<size_t>(t)])
        << "token " << t << " of request " << span.request << " is not what its page holds";
  }
  slot.committed = first + accepted;
  if (!span.samples) return;
  slot.tokens.resize(static_cast<size_t>(slot.committed));
  slot.tokens.push_back(draw(request, slot.committed));
  const int64_t count = span.generates ? accepted : 1;
  drawn.assign(slot.tokens.end() - count, slot.tokens.end());
}

std::vector<std::vector<int32_t>> SimulatedDevice::run(
    const BatchPlan& plan, const std::map<RequestId, SimulatedRequest>& requests) {
  for (const SlotStart& start : plan.starts) {
    const SimulatedRequest& request = requests.at(start.request);
    Slot slot{.request = start.request, .committed = start.position, .tokens = {}, .pages = {}};
    for (int64_t t = 0; t < start.position; ++t) {
      slot.tokens.push_back(t < request.prompt ? request.tokens[static_cast<size_t>(t)]
                                               : draw(request, t));
    }
    slots_[start.slot] = std::move(slot);
  }
  for (const PageAssignment& page : plan.pages) {
    std::vector<int32_t>& pages = slots_.at(page.slot).pages;
    EXPECT_EQ(static_cast<int64_t>(pages.size()), page.page);
    pages.push_back(page.page_id);
  }
  std::vector<std::vector<int32_t>> drawn(plan.spans.size());
  for (size_t i = 0; i < plan.spans.size(); ++i) {
    const PlanSpan& span = plan.spans[i];
    run_span(plan, span, requests.at(span.request), drawn[i]);
    if (::testing::Test::HasFatalFailure()) break;
  }
  return drawn;
}

Simulation::Simulation(const Options& options)
    : options_(options),
      cache_({.num_pages = options.num_pages,
              .page_tokens = options.rules.page_tokens,
              .num_snapshot_units = options.num_snapshot_units,
              .identity = "simulation"}),
      scheduler_(options.limits, options.rules, cache_),
      device_(options.seed, options.rules.page_tokens, options.num_pages),
      random_(options.seed) {}

RequestId Simulation::add(SimulatedRequest request) {
  const RequestId id = next_++;
  request.arrival = now_;
  if (request.stream == 0) request.stream = id;
  scheduler_.add(id, {.tokens = request.tokens,
                      .max_tokens = request.end,
                      .priority = static_cast<int32_t>(request.priority),
                      .score = request.score,
                      .salt = request.salt});
  if (request.drafts > 0) scheduler_.set_drafts(id, request.drafts);
  known_[id] = request;
  unstarted_.insert(key_of(id, request));
  living_.insert(key_of(id, request));
  requests_[id] = std::move(request);
  return id;
}

void Simulation::cancel(RequestId id) {
  scheduler_.remove(id);
  const auto found = requests_.find(id);
  if (found == requests_.end()) return;
  unstarted_.erase(key_of(id, found->second));
  living_.erase(key_of(id, found->second));
  requests_.erase(found);
}

void Simulation::check_plan(const BatchPlan& plan) {
  const Limits& limits = options_.limits;
  const auto rows = static_cast<int64_t>(plan.rows.size());
  ASSERT_LE(rows, limits.max_rows());
  ASSERT_LE(plan.num_logit_rows, limits.max_logit_rows());
  ASSERT_EQ(plan.rows_at_layer.size(), static_cast<size_t>(options_.rules.num_layers));
  ASSERT_TRUE(std::ranges::is_sorted(plan.rows_at_layer, std::greater<>()));
  ASSERT_LE(plan.num_logit_rows, plan.rows_at_layer.back());
  ASSERT_EQ(plan.rows_at_layer.front(), rows);
  ASSERT_NO_FATAL_FAILURE(check_spans(plan));
  ASSERT_NO_FATAL_FAILURE(check_order(plan));
}

/// Every budget holds by itself, not only their sum.
void Simulation::check_spans(const BatchPlan& plan) {
  const Limits& limits = options_.limits;
  int64_t prompt_rows = 0;
  int64_t scored_rows = 0;
  int64_t total = 0;
  std::set<int32_t> slots;
  for (const PlanSpan& span : plan.spans) {
    ASSERT_TRUE(slots.insert(span.slot).second) << "slot twice in a plan";
    ASSERT_GE(span.slot, 0);
    ASSERT_LT(span.slot, limits.max_running);
    ASSERT_GE(span.num_tokens, 1);
    total += span.num_tokens;
    const SimulatedRequest& request = known_.at(span.request);
    if (span.generates) {
      ASSERT_LE(span.num_tokens, 1 + request.drafts);
      most_verified_ = std::max(most_verified_, span.num_tokens);
    } else {
      prompt_rows += span.num_tokens;
      if (request.score) scored_rows += span.num_tokens;
    }
    if (span.num_logits > 0) {
      ASSERT_LE(span.first_logit + span.num_logits, plan.num_logit_rows);
    }
    ASSERT_EQ(plan.span_size[static_cast<size_t>(span.last_row)], span.num_tokens);
  }
  ASSERT_LE(prompt_rows, limits.max_prefill_rows);
  ASSERT_LE(scored_rows, limits.max_score_rows);
  ASSERT_EQ(total, static_cast<int64_t>(plan.rows.size()));
}

/// Nobody starts while a request that comes before it by key has never started.
void Simulation::check_order(const BatchPlan& plan) {
  for (const SlotStart& start : plan.starts) {
    const auto found = requests_.find(start.request);
    ASSERT_NE(found, requests_.end()) << "request " << start.request << " starts after its end";
    const Key key = key_of(start.request, found->second);
    if (!unstarted_.empty()) {
      ASSERT_LE(key, *unstarted_.begin())
          << "request " << start.request << " starts before " << unstarted_.begin()->second;
    }
    unstarted_.erase(key);
  }
}

/// How long the first by key has been first: everybody becomes first, so a bound on this is one on
/// waiting.
void Simulation::watch_first() {
  const std::optional<Key> first =
      living_.empty() ? std::nullopt : std::optional<Key>(*living_.begin());
  if (first != first_) first_since_ = now_;
  first_ = first;
  longest_as_first_ = std::max(longest_as_first_, now_ - first_since_);
}

void Simulation::check_totals() const {
  ASSERT_EQ(cache_.num_free() + cache_.num_cached() + cache_.num_held(), cache_.size());
  const cache::SnapshotPool& snapshots = cache_.snapshots();
  ASSERT_EQ(snapshots.num_free() + snapshots.num_cached() + snapshots.num_held(),
            snapshots.num_units());
  if (!idle()) return;
  ASSERT_EQ(cache_.num_held(), 0);
  ASSERT_EQ(snapshots.num_held(), 0);
  ASSERT_EQ(scheduler_.num_requests(), 0);
}

void Simulation::launch() {
  auto flight = std::make_unique<Flight>();
  BatchPlan& plan = flight->plan;
  scheduler_.plan(plan);
  ASSERT_NO_FATAL_FAILURE(check_plan(plan));
  if (plan.empty()) {
    ASSERT_TRUE(scheduler_.num_requests() == 0 || !flying_.empty()) << "no progress";
    return;
  }
  for (const ops::PlanRow& row : plan.rows) {
    trace_ = mix(trace_, static_cast<uint64_t>(row.slot));
    trace_ = mix(trace_, static_cast<uint64_t>(row.offset));
    trace_ = mix(trace_, static_cast<uint64_t>(row.token));
  }
  const bool behind_fault =
      std::ranges::any_of(flying_, [](const auto& other) { return other->failed; });
  flight->failed =
      behind_fault || static_cast<double>(random_() % 100000) < options_.fault_rate * 100000;
  if (!flight->failed) flight->drawn = device_.run(plan, known_);
  flying_.push_back(std::move(flight));
}

void Simulation::land() {
  if (flying_.empty()) return;
  const std::unique_ptr<Flight> flight = std::move(flying_.front());
  flying_.pop_front();
  if (flight->failed) {
    ++num_faults_;
    scheduler_.fail(flight->plan, /*alone=*/true);
    for (const auto& behind : flying_) scheduler_.fail(behind->plan, /*alone=*/false);
    flying_.clear();
    return;
  }
  for (size_t i = 0; i < flight->plan.spans.size(); ++i) {
    const PlanSpan& span = flight->plan.spans[i];
    const bool alive = scheduler_.land(span, flight->drawn[i]);
    const auto found = requests_.find(span.request);
    ASSERT_EQ(alive, found != requests_.end());
    if (!alive) continue;
    SimulatedRequest& request = found->second;
    for (const int32_t token : flight->drawn[i]) {
      const auto index = static_cast<int64_t>(request.tokens.size());
      ASSERT_EQ(token, SimulatedDevice::draw(request, index)) << "a token is missing or doubled";
      if (index < request.end) request.tokens.push_back(token);
    }
    const bool scored = request.score && span.first_token + span.num_tokens == request.prompt;
    if (scored || static_cast<int64_t>(request.tokens.size()) == request.end) {
      finished_.push_back(span.request);
      cancel(span.request);
    }
  }
}

void Simulation::step() {
  ++now_;
  const size_t before = flying_.size();
  ASSERT_NO_FATAL_FAILURE(launch());
  const bool launched = flying_.size() > before;
  // Sometimes a result comes early, as on a device that is faster than its host.
  if (!launched || flying_.size() >= options_.depth || random_() % 4 == 0) {
    ASSERT_NO_FATAL_FAILURE(land());
  }
  watch_first();
  ASSERT_NO_FATAL_FAILURE(check_totals());
}

void Simulation::finish(int64_t max_steps) {
  for (int64_t i = 0; i < max_steps && !idle(); ++i) {
    ASSERT_NO_FATAL_FAILURE(step());
    if (requests_.empty()) {
      ASSERT_NO_FATAL_FAILURE(land());
      ASSERT_NO_FATAL_FAILURE(check_totals());
    }
  }
  ASSERT_TRUE(idle()) << "requests starve";
  ASSERT_NO_FATAL_FAILURE(check_totals());
}

}  // namespace deepinfer::scheduler
