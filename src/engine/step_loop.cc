#include "engine/step_loop.h"

#include <exception>
#include <utility>

#include "base/error.h"
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

void StepLoop::cancel_all() {
  for (auto& [id, request] : generating_) {
    request->finish(FinishReason::kCancelled);
    scheduler_.remove(id);
  }
  generating_.clear();
  for (auto& [id, job] : scoring_) {
    job->fail(std::make_exception_ptr(
        Error(ErrorCode::kResourceExhausted, "the engine stopped before the score was computed")));
    scheduler_.remove(id);
  }
  scoring_.clear();
}

void StepLoop::step() {
  const scheduler::BatchPlan plan = scheduler_.plan();
  DEEPINFER_CHECK(!plan.empty(), "requests wait, but the scheduler plans nothing");
  try {
    run(plan);
  } catch (const std::exception& error) {
    // The computation is at fault (a damaged table, no memory), not the loop: its requests end,
    // others go on.
    fail_requests(plan, error.what());
  }
  publish_stats(static_cast<int64_t>(plan.rows.size()));
}

void StepLoop::run(const scheduler::BatchPlan& plan) {
  reset_slots(plan);
  const std::vector<RowRequest> rows = row_requests(plan);
  deliver(plan, runner_.run(plan, rows));
}

void StepLoop::reset_slots(const scheduler::BatchPlan& plan) {
  for (const int32_t slot : plan.reset_slots) {
    // A slot may be admitted without rows in this step; its next span repeats nothing of this.
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
      const TensorView logits = runner_.logits();
      done = job->second->accept(span.first_token,
                                 std::span(tokens).subspan(static_cast<size_t>(first_row),
                                                           static_cast<size_t>(span.num_tokens)),
                                 logits.row<const float>(first_row));
      if (done) scoring_.erase(job);
    }
    if (done) scheduler_.remove(span.request);
  }
}

void StepLoop::fail_requests(const scheduler::BatchPlan& plan, const std::string& error) {
  for (const scheduler::PlanSpan& span : plan.spans) {
    if (const auto found = generating_.find(span.request); found != generating_.end()) {
      found->second->finish(FinishReason::kError, error);
      generating_.erase(found);
    }
    if (const auto job = scoring_.find(span.request); job != scoring_.end()) {
      job->second->fail(std::current_exception());
      scoring_.erase(job);
    }
    scheduler_.remove(span.request);
  }
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
