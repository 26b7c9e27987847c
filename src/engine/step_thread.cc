#include "engine/step_thread.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace deepinfer::engine {
namespace {

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

StepThread::StepThread(Runner& runner, const std::function<void()>& on_start,
                       std::function<void()> on_done)
    : runner_(runner),
      on_done_(std::move(on_done)),
      thread_([this, on_start](const std::stop_token& stop) {
        on_start();
        work(stop);
      }) {}

StepThread::~StepThread() {
  thread_.request_stop();
  launched_.notify_all();
}

void StepThread::launch(Step& step) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(&step);
    pending_.push_back(&step);
  }
  launched_.notify_one();
}

bool StepThread::done(const Step& step) {
  const std::lock_guard lock(mutex_);
  return std::ranges::find(pending_, &step) == pending_.end();
}

void StepThread::wait(const Step& step) {
  std::unique_lock lock(mutex_);
  finished_.wait(lock, [&] { return std::ranges::find(pending_, &step) == pending_.end(); });
}

void StepThread::work(const std::stop_token& stop) {
  while (true) {
    // A step that has its results is handed back before anything else is begun.
    if (!started_.empty() && has_ended(*started_.front())) {
      finish(*started_.front());
      continue;
    }
    // One step computes, one waits behind it: more would only keep the newest results back.
    const bool full = started_.size() >= 2;
    if (Step* next = full ? nullptr : take(stop, started_.empty()); next != nullptr) {
      start(*next);
    } else if (!started_.empty()) {
      finish(*started_.front());
    } else {
      return;  // asked to stop
    }
  }
}

Step* StepThread::take(const std::stop_token& stop, bool wait) {
  std::unique_lock lock(mutex_);
  if (wait) launched_.wait(lock, stop, [this] { return !queue_.empty(); });
  if (queue_.empty() || stop.stop_requested()) return nullptr;
  Step* step = queue_.front();
  queue_.pop_front();
  return step;
}

bool StepThread::has_ended(const Step& step) {
  return step.skipped || step.error || runner_.is_done(step);
}

void StepThread::start(Step& step) {
  step.error = nullptr;
  step.skipped = step.epoch == failed_epoch_;
  step.seconds = now_seconds();
  started_.push_back(&step);
  if (step.skipped) return;
  try {
    runner_.launch(step);
  } catch (...) {
    step.error = std::current_exception();
    failed_epoch_ = step.epoch;
  }
}

void StepThread::finish(Step& step) {
  if (!step.skipped && !step.error) {
    try {
      runner_.wait(step);
      // It was enqueued before the step it builds on turned out to fail.
      step.skipped = step.epoch == failed_epoch_;
    } catch (...) {
      step.error = std::current_exception();
      failed_epoch_ = step.epoch;
    }
  }
  step.seconds = now_seconds() - step.seconds;
  started_.pop_front();
  {
    const std::lock_guard lock(mutex_);
    std::erase(pending_, &step);
  }
  finished_.notify_all();
  on_done_();
}

}  // namespace deepinfer::engine
