#pragma once

#include <cstdint>
#include <ctime>
#include <deque>
#include <functional>
#include <optional>

#include "engine/step.h"

namespace deepinfer::engine {

/// Processor time of the calling thread: unlike the time of day it does not run while others do.
inline double thread_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// A device whose steps take a fixed time and draw tokens from a formula. Its clock is virtual: the
/// host's own processor time, plus the waiting that a real host would have done.
class FakeDevice final : public StepExecutor {
 public:
  explicit FakeDevice(double step_seconds = 0.005) : step_seconds_(step_seconds) {}

  /// Steps for which this returns true fail.
  std::function<bool(const Step&)> fails;
  /// The token drawn for a request's output number `index`.
  std::function<int32_t(scheduler::RequestId, int64_t)> draw = [](auto id, int64_t index) {
    return static_cast<int32_t>((id * 31 + static_cast<uint64_t>(index) * 7) % 100);
  };

  void launch(Step& step) override {
    const double now = host_now();
    const double begin = std::max(now, free_at_);
    if (num_steps_++ > 0) idle_ += begin - free_at_;
    if (num_steps_ == 1) first_ = begin;
    free_at_ = begin + step_seconds_;
    ends_.push_back({&step, free_at_});
    compute(step);
  }
  bool done(const Step& step) override { return end_of(step) <= host_now(); }
  void wait(const Step& step) override { skipped_ += std::max(0.0, end_of(step) - host_now()); }

  /// Share of the time between first and last step in which no step ran.
  double idle_share() const { return idle_ / (free_at_ - first_); }
  double idle_seconds() const { return idle_; }
  int64_t num_steps() const { return num_steps_; }

 private:
  struct End {
    const Step* step;
    double time;
  };

  double host_now() const { return thread_seconds() - begin_ + skipped_; }
  double end_of(const Step& step) const {
    double time = 0;
    for (const End& end : ends_) {
      if (end.step == &step) time = end.time;
    }
    return time;
  }

  void compute(Step& step) {
    while (ends_.size() > 8) ends_.pop_front();
    const auto rows = static_cast<int64_t>(step.rows.size());
    step.num_top = 0;
    step.error = nullptr;
    step.skipped = step.epoch == failed_epoch_;
    step.seconds = step_seconds_;
    if (step.skipped) return;
    if (fails && fails(step)) {
      failed_epoch_ = step.epoch;
      step.error = std::make_exception_ptr(Error(ErrorCode::kIo, "a fault that was asked for"));
      return;
    }
    if (step.token.view().empty() || step.token.shape()[0] < rows) {
      step.token = Tensor(DType::kI32, {rows + 64});
      step.logprob = Tensor(DType::kF32, {rows + 64});
    }
    for (const scheduler::PlanSpan& span : step.plan.spans) {
      for (int64_t i = 0; i < span.num_logits; ++i) {
        const int64_t row = span.first_logit + i;
        const auto generated = step.rows[static_cast<size_t>(row)].num_generated;
        step.token.as<int32_t>()[row] = draw(span.request, generated);
        step.logprob.as<float>()[row] = -static_cast<float>(generated);
      }
    }
  }

  double step_seconds_;
  double begin_ = thread_seconds();
  double skipped_ = 0;
  double free_at_ = 0;
  double first_ = 0;
  double idle_ = 0;
  int64_t num_steps_ = 0;
  uint64_t failed_epoch_ = ~0ULL;
  std::deque<End> ends_;
};

}  // namespace deepinfer::engine
