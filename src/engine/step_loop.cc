#include "engine/step_loop.h"

#include <new>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "sampling/sample_row.h"

namespace deepinfer::engine {

StepLoop::StepLoop(Runner& runner, cache::IndexPool& pages, const scheduler::Limits& limits)
    : runner_(runner), pages_(pages), scheduler_(limits, pages) {
  publish_stats(0);
}

void StepLoop::start(scheduler::RequestId id, std::unique_ptr<RequestState> request) {
  scheduler_.add(id, request->request().prompt);
  generating_.emplace(id, std::move(request));
}

void StepLoop::start(scheduler::RequestId id, std::unique_ptr<ScoreJob> job) {
  scheduler_.add(id, job->tokens(), /*all_logits=*/true);
  scoring_.emplace(id, std::move(job));
}

void StepLoop::cancel(scheduler::RequestId id) {
  const auto found = generating_.find(id);
  if (found == generating_.end()) return;
  found->second->finish(FinishReason::kCancelled);
  generating_.erase(found);
  scheduler_.remove(id);
  publish_stats(0);
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
  generating_.clear();
  scoring_.clear();  // their askers see a broken promise
}

void StepLoop::step() {
  const scheduler::BatchPlan plan = scheduler_.plan();
  DEEPINFER_CHECK(!plan.empty(), "requests wait, but the scheduler plans nothing");
  std::optional<std::vector<GeneratedToken>> tokens;
  try {
    tokens = compute(plan);
  } catch (const std::exception& error) {
    // Nothing was committed, so every part of the step can be computed again with equal bits.
    if (plan.spans.size() == 1) fail_request(plan.spans[0].request, error);
  }
  if (tokens) {
    deliver(plan, std::move(*tokens));
  } else if (plan.spans.size() > 1) {
    for (const scheduler::PlanSpan& span : plan.spans) compute_alone(plan.only(span));
  }
  publish_stats(static_cast<int64_t>(plan.rows.size()));
}

void StepLoop::compute_alone(const scheduler::BatchPlan& plan) {
  std::vector<GeneratedToken> tokens;
  try {
    tokens = compute(plan);
  } catch (const std::exception& error) {
    fail_request(plan.spans[0].request, error);
    return;
  }
  deliver(plan, std::move(tokens));
}

std::vector<GeneratedToken> StepLoop::compute(const scheduler::BatchPlan& plan) {
  reset_slots(plan);
  return runner_.run(plan, row_requests(plan));
}

void StepLoop::reset_slots(const scheduler::BatchPlan& plan) {
  for (const int32_t slot : plan.reset_slots) {
    const scheduler::RequestId id = scheduler_.request_of(slot);
    const auto found = generating_.find(id);
    if (found == generating_.end()) {
      runner_.reset_slot(slot, {}, {});
    } else {
      runner_.reset_slot(slot, found->second->request().prompt, found->second->output());
    }
  }
}

RowRequest StepLoop::generating_row(const RequestState& request) const {
  const SamplingParams& sampling = request.request().sampling;
  const auto generated = static_cast<int64_t>(request.output().size());
  RowRequest row;
  row.sample = sampling::sample_row(sampling, request.seed(), request.eos_token(), generated);
  row.num_top = sampling.logprobs.value_or(0);
  row.num_generated = generated;
  if (sampling::needs_bias(sampling, generated)) row.biased = &sampling;
  return row;
}

std::vector<RowRequest> StepLoop::row_requests(const scheduler::BatchPlan& plan) const {
  std::vector<RowRequest> rows(static_cast<size_t>(plan.num_logit_rows));
  for (const scheduler::PlanSpan& span : plan.spans) {
    if (span.samples) {
      rows[static_cast<size_t>(span.last_row)] = generating_row(*generating_.at(span.request));
    } else if (const auto job = scoring_.find(span.request); job != scoring_.end()) {
      for (int64_t i = 0; i < span.num_tokens; ++i) {
        const int64_t row = span.last_row - span.num_tokens + 1 + i;
        rows[static_cast<size_t>(row)] = job->second->row(span.first_token + i);
      }
    }
  }
  return rows;
}

void StepLoop::deliver(const scheduler::BatchPlan& plan, std::vector<GeneratedToken> tokens) {
  for (const scheduler::PlanSpan& span : plan.spans) {
    bool done = false;
    if (span.samples) {
      GeneratedToken& token = tokens[static_cast<size_t>(span.last_row)];
      const int32_t id = token.id;
      done = generating_.at(span.request)->accept(std::move(token));
      if (done) {
        generating_.erase(span.request);
      } else {
        scheduler_.append(span.request, id);
      }
    } else if (const auto job = scoring_.find(span.request); job != scoring_.end()) {
      const int64_t first_row = span.last_row - span.num_tokens + 1;
      TensorView logits;
      if (job->second->wants_logits()) {
        logits = runner_.logits().slice(first_row, span.num_tokens);
      }
      done = job->second->accept(span.first_token,
                                 std::span(tokens).subspan(static_cast<size_t>(first_row),
                                                           static_cast<size_t>(span.num_tokens)),
                                 logits);
      if (done) scoring_.erase(job);
    }
    if (done) scheduler_.remove(span.request);
  }
}

void StepLoop::fail_request(scheduler::RequestId id, const std::exception& error) {
  const auto* known = dynamic_cast<const Error*>(&error);
  const bool no_memory = dynamic_cast<const std::bad_alloc*>(&error) != nullptr;
  const ErrorCode code = known != nullptr ? known->code()
                         : no_memory      ? ErrorCode::kResourceExhausted
                                          : ErrorCode::kInternal;
  const std::string message =
      no_memory ? "the machine has no memory left for a step" : error.what();
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

void StepLoop::publish_stats(int64_t rows) {
  const std::lock_guard lock(stats_mutex_);
  stats_.waiting = scheduler_.num_waiting();
  stats_.running = scheduler_.num_running();
  stats_.preemptions = scheduler_.num_preemptions();
  stats_.pages_total = pages_.size();
  stats_.pages_free = pages_.num_free();
  stats_.steps += rows > 0 ? 1 : 0;
  stats_.rows += rows;
}

EngineStats StepLoop::stats() const {
  const std::lock_guard lock(stats_mutex_);
  return stats_;
}

}  // namespace deepinfer::engine
