#include "engine/step_loop.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "sampling/sample_row.h"

namespace deepinfer::engine {

namespace {

using Clock = cache::CacheTiers::Clock;

/// What the tiers answer, or nothing when there is no memory for it: they may lose entries, never
/// requests.
template <typename Ask>
auto or_nothing(Ask&& ask) -> decltype(ask()) {
  try {
    return ask();
  } catch (const std::bad_alloc&) {
    log_warning("no memory for the cache's tiers; the engine goes on without");
    return {};
  }
}

std::string_view salt_of(const Request& request) {
  return request.cache_salt ? std::string_view(*request.cache_salt) : std::string_view();
}

}  // namespace

StepLoop::StepLoop(StepExecutor& executor, cache::PrefixCache& cache,
                   const scheduler::Limits& limits, const cache::RestartRules& rules,
                   cache::CacheTiers* tiers)
    : executor_(executor),
      cache_(cache),
      tiers_(tiers),
      scheduler_(limits, rules, cache),
      num_layers_(rules.num_layers) {
  for (size_t i = 0; i < kDepth; ++i) free_.push_back(std::make_unique<Step>());
  publish_stats();
}

StepLoop::~StepLoop() {
  for (const std::unique_ptr<Step>& step : flying_) executor_.wait(*step);
}

void StepLoop::start(scheduler::RequestId id, std::unique_ptr<RequestState> request) {
  const Request& asked = request->request();
  std::optional<cache::CacheTiers::LoadId> load;
  if (tiers_ != nullptr) {
    const std::span<const int32_t> prompt = asked.prompt;
    load = or_nothing([&] {
      return tiers_->start_load(prompt.first(prompt.size() - 1), salt_of(asked), Clock::now());
    });
  }
  if (load) {
    loading_.emplace(*load, id);
  } else {
    add(id, *request);
  }
  generating_.emplace(id, std::move(request));
}

void StepLoop::add(scheduler::RequestId id, const RequestState& request) {
  const Request& asked = request.request();
  const auto prompt = static_cast<int64_t>(asked.prompt.size());
  scheduler_.add(id, {.tokens = asked.prompt,
                      .max_tokens = prompt + request.max_new_tokens(),
                      .priority = asked.priority,
                      .salt = salt_of(asked)});
}

bool StepLoop::add_loaded() {
  if (tiers_ == nullptr) return false;
  bool added = false;
  const auto ended = or_nothing([&] { return tiers_->finish_loads(Clock::now()); });
  for (const cache::CacheTiers::LoadId load : ended) {
    const auto found = loading_.find(load);
    if (found == loading_.end()) continue;  // cancelled
    add(found->second, *generating_.at(found->second));
    loading_.erase(found);
    added = true;
  }
  return added;
}

void StepLoop::start(scheduler::RequestId id, std::unique_ptr<ScoreJob> job) {
  const auto size = static_cast<int64_t>(job->tokens().size());
  scheduler_.add(id, {.tokens = job->tokens(), .max_tokens = size, .score = true});
  scoring_.emplace(id, std::move(job));
}

void StepLoop::cancel(scheduler::RequestId id) {
  const auto found = generating_.find(id);
  if (found == generating_.end()) return;
  found->second->finish(FinishReason::kCancelled);
  generating_.erase(found);
  const auto load = std::ranges::find(loading_, id, [](const auto& entry) { return entry.second; });
  if (load != loading_.end()) {
    tiers_->cancel(load->first);
    loading_.erase(load);
  }
  scheduler_.remove(id);
  publish_stats();
}

void StepLoop::end_all(const std::string& error) noexcept {
  const FinishReason reason = error.empty() ? FinishReason::kCancelled : FinishReason::kError;
  for (auto& [id, request] : generating_) {
    try {
      request->finish(reason, error);
    } catch (const std::exception& another) {
      log_warning("a request ended without telling its reader: {}", another.what());
    }
  }
  try {
    // Steps under way find nobody to deliver to.
    for (const auto& [id, request] : generating_) scheduler_.remove(id);
    for (const auto& [id, job] : scoring_) scheduler_.remove(id);
  } catch (const std::exception& another) {
    log_warning("requests ended without giving back their pages: {}", another.what());
  }
  generating_.clear();
  loading_.clear();
  scoring_.clear();  // their askers see a broken promise
}

bool StepLoop::launch() {
  bool launched = false;
  while (!free_.empty()) {
    Step& step = *free_.back();
    const bool wants_plan = scheduler_.num_requests() > 0;
    const bool has_plan = wants_plan && plan(step);
    if (!has_plan) step.clear();
    if (tiers_ != nullptr) {
      step.transfers = or_nothing([this] { return tiers_->take_transfers(); });
    }
    if (!has_plan && step.transfers == nullptr) {
      DEEPINFER_CHECK(!wants_plan || !flying_.empty(),
                      "requests wait, but the scheduler plans nothing");
      break;
    }
    launch_free();
    launched = true;
  }
  if (launched) publish_stats();
  return launched;
}

void StepLoop::launch_free() {
  Step& step = *free_.back();
  step.epoch = epoch_;
  flying_.push_back(std::move(free_.back()));
  free_.pop_back();
  executor_.launch(step);
}

void StepLoop::save_cached() {
  drain();
  while (tiers_ != nullptr) {
    Step& step = *free_.back();
    step.clear();
    step.transfers = or_nothing([this] { return tiers_->take_transfers(); });
    if (step.transfers == nullptr) break;
    launch_free();
    drain();
  }
}

void StepLoop::finish_transfers(Step& step) {
  if (step.transfers != nullptr) tiers_->finish_transfers(std::move(step.transfers));
}

bool StepLoop::plan(Step& step) {
  const auto begin = std::chrono::steady_clock::now();
  scheduler_.plan(step.plan);
  counts_.plan_seconds +=
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (step.plan.empty()) return false;
  describe_rows(step);
  return true;
}

void StepLoop::describe_rows(Step& step) {
  step.rows.assign(static_cast<size_t>(step.plan.num_logit_rows), RowRequest());
  step.seen.clear();
  step.wants_logits = false;
  for (const scheduler::SlotStart& start : step.plan.starts) {
    const auto found = generating_.find(start.request);
    if (found == generating_.end()) continue;
    const RequestState& request = *found->second;
    if (!request.has_penalty()) continue;
    step.seen.push_back({start.slot, request.request().prompt, request.output()});
  }
  for (const scheduler::PlanSpan& span : step.plan.spans) {
    if (span.num_logits == 0) continue;
    const auto first = static_cast<size_t>(span.first_logit);
    if (span.samples) {
      step.rows[first] = generating_row(*generating_.at(span.request), span);
      continue;
    }
    const ScoreJob& job = *scoring_.at(span.request);
    step.wants_logits = step.wants_logits || job.wants_logits();
    for (int64_t i = 0; i < span.num_logits; ++i) {
      step.rows[first + static_cast<size_t>(i)] = job.row(span.first_token + i);
    }
  }
}

RowRequest StepLoop::generating_row(const RequestState& request,
                                    const scheduler::PlanSpan& span) const {
  const SamplingParams& sampling = request.request().sampling;
  // Tokens of the output before this one; some may still be on the device.
  const int64_t generated = span.first_token + span.num_tokens - request.prompt_tokens();
  RowRequest row;
  row.sample = sampling::sample_row(sampling, request.seed(), request.eos_token(), generated);
  row.num_top = sampling.logprobs.value_or(0);
  row.num_generated = generated;
  if (sampling::needs_bias(sampling, generated)) row.biased = request.shared_sampling();
  return row;
}

bool StepLoop::land() {
  bool landed = false;
  while (!flying_.empty() && executor_.done(*flying_.front())) {
    take_oldest();
    landed = true;
  }
  landed = add_loaded() || landed;
  if (landed) publish_stats();
  return landed;
}

void StepLoop::wait_oldest() {
  if (flying_.empty()) return;
  executor_.wait(*flying_.front());
  take_oldest();
  publish_stats();
}

void StepLoop::drain() {
  while (!flying_.empty()) wait_oldest();
}

void StepLoop::take_oldest() {
  std::unique_ptr<Step> step = std::move(flying_.front());
  flying_.pop_front();
  finish_transfers(*step);
  if (step->error) {
    recover(*step);
  } else {
    count_step(*step);
    deliver(*step);
  }
  free_.push_back(std::move(step));
}

void StepLoop::deliver(Step& step) {
  for (const scheduler::PlanSpan& span : step.plan.spans) {
    if (span.samples) {
      deliver_tokens(step, span);
    } else if (span.num_logits > 0) {
      deliver_scores(step, span);
    } else {
      scheduler_.land(span, {});
    }
  }
}

GeneratedToken StepLoop::token_of(const Step& step, int64_t row, int32_t num_top) const {
  GeneratedToken token;
  token.id = step.token.as<const int32_t>()[row];
  token.logprob = step.logprob.as<const float>()[row];
  for (int64_t t = 0; t < num_top; ++t) {
    const int64_t at = row * step.num_top + t;
    const int32_t id = step.top_tokens.as<const int32_t>()[at];
    if (id < 0) break;  // fewer tokens than were asked for
    token.top.push_back({.token = id, .logprob = step.top_logprobs.as<const float>()[at]});
  }
  return token;
}

void StepLoop::deliver_tokens(const Step& step, const scheduler::PlanSpan& span) {
  drawn_.assign(1, step.token.as<const int32_t>()[span.first_logit]);
  if (!scheduler_.land(span, drawn_)) return;  // it ended while this step was under way
  const auto found = generating_.find(span.request);
  RequestState& request = *found->second;
  request.set_cached_tokens(scheduler_.cached_tokens(span.request));
  const int32_t top = request.request().sampling.logprobs.value_or(0);
  if (!request.accept(token_of(step, span.first_logit, top))) return;
  generating_.erase(found);
  scheduler_.remove(span.request);
}

void StepLoop::deliver_scores(const Step& step, const scheduler::PlanSpan& span) {
  if (!scheduler_.land(span, {})) return;
  const auto found = scoring_.find(span.request);
  ScoreJob& job = *found->second;
  TensorView logits;
  if (job.wants_logits()) logits = step.logits.view().slice(span.first_logit, span.num_logits);
  const std::span logprobs(step.logprob.as<const float>() + span.first_logit,
                           static_cast<size_t>(span.num_logits));
  if (!job.accept(span.first_token, logprobs, logits)) return;
  scoring_.erase(found);
  scheduler_.remove(span.request);
}

void StepLoop::recover(Step& step) {
  ++counts_.failed_steps;
  const std::vector<scheduler::PlanSpan>& spans = step.plan.spans;
  // A fault of this request alone, seen twice: it is not going to pass.
  const bool alone = spans.size() == 1 && scheduler_.runs_alone(spans[0].request);
  if (alone) fail_request(spans[0].request, step.error);
  if (!step.plan.empty()) scheduler_.fail(step.plan, /*alone=*/!alone);
  // The steps behind it build on what it did not compute.
  for (const std::unique_ptr<Step>& next : flying_) {
    executor_.wait(*next);
    finish_transfers(*next);
    if (!next->plan.empty()) scheduler_.fail(next->plan, /*alone=*/false);
  }
  while (!flying_.empty()) {
    free_.push_back(std::move(flying_.front()));
    flying_.pop_front();
  }
  ++epoch_;
}

void StepLoop::fail_request(scheduler::RequestId id, const std::exception_ptr& error) {
  ErrorCode code = ErrorCode::kInternal;
  std::string message = "the step failed for an unknown reason";
  try {
    std::rethrow_exception(error);
  } catch (const Error& known) {
    code = known.code();
    message = known.what();
  } catch (const std::bad_alloc&) {
    code = ErrorCode::kResourceExhausted;
    message = "the machine has no memory left for a step";
  } catch (const std::exception& other) {
    message = other.what();
  } catch (...) {
    log_warning("a step failed with something that is no exception of this program");
  }
  if (const auto found = generating_.find(id); found != generating_.end()) {
    found->second->finish(FinishReason::kError, message, code);
    generating_.erase(found);
  }
  if (const auto job = scoring_.find(id); job != scoring_.end()) {
    job->second->fail(std::make_exception_ptr(Error(code, message)));
    scoring_.erase(job);
  }
  scheduler_.remove(id);
}

void StepLoop::count_step(const Step& step) {
  if (step.plan.empty()) return;  // copies only
  const auto rows = static_cast<int64_t>(step.plan.rows.size());
  ++counts_.steps;
  counts_.rows += rows;
  counts_.full_layer_rows += rows * num_layers_;
  for (const int64_t layer_rows : step.plan.rows_at_layer) counts_.layer_rows += layer_rows;
  for (const scheduler::PlanSpan& span : step.plan.spans) {
    counts_.replayed_rows += span.num_replayed;
  }
  counts_.step_seconds += step.seconds;
}

void StepLoop::publish_stats() {
  const cache::SnapshotPool& snapshots = cache_.snapshots();
  const std::lock_guard lock(stats_mutex_);
  stats_ = counts_;
  stats_.waiting = scheduler_.num_waiting() + static_cast<int64_t>(loading_.size());
  stats_.running = scheduler_.num_running();
  stats_.preemptions = scheduler_.num_preemptions();
  stats_.prompt_tokens = scheduler_.num_prompt_tokens();
  stats_.cached_tokens = scheduler_.num_cached_tokens();
  stats_.pages_total = cache_.size();
  stats_.pages_free = cache_.num_free();
  stats_.pages_cached = cache_.num_cached();
  stats_.pages_held = cache_.num_held();
  stats_.page_evictions = cache_.num_evictions();
  stats_.snapshot_units_total = snapshots.num_units();
  stats_.snapshot_units_free = snapshots.num_free();
  stats_.snapshot_units_cached = snapshots.num_cached();
  stats_.snapshot_units_held = snapshots.num_held();
  if (tiers_ == nullptr) return;
  const cache::TierStore::Stats tiers = tiers_->store().stats();
  stats_.loading = static_cast<int64_t>(loading_.size());
  stats_.tier_entries_loaded = tiers.loaded_entries;
  stats_.tier_entries_stored = tiers.stored_entries;
  stats_.tier_entries_dropped = tiers.dropped_entries;
  stats_.tier_bytes = 0;
  for (const int64_t bytes : tiers_->store().num_bytes()) stats_.tier_bytes += bytes;
}

EngineStats StepLoop::stats() const {
  const std::lock_guard lock(stats_mutex_);
  return stats_;
}

}  // namespace deepinfer::engine
