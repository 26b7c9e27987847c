#include "engine/output_stream.h"

#include <exception>
#include <iterator>
#include <utility>

#include "base/log.h"

namespace deepinfer {

const char* to_string(FinishReason reason) noexcept {
  switch (reason) {
    case FinishReason::kNone:
      return "";
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
    case FinishReason::kError:
      return "error";
  }
  return "";
}

void OutputStream::State::push(OutputDelta delta) {
  {
    const std::lock_guard lock(mutex_);
    if (finished_) return;
    finished_ = delta.finish_reason != FinishReason::kNone;
    deltas_.push_back(std::move(delta));
  }
  ready_.notify_one();
}

std::optional<OutputDelta> OutputStream::State::pop(bool wait) {
  std::unique_lock lock(mutex_);
  if (wait) ready_.wait(lock, [this] { return finished_ || !deltas_.empty(); });
  if (deltas_.empty()) return std::nullopt;
  OutputDelta delta = std::move(deltas_.front());
  deltas_.pop_front();
  return delta;
}

bool OutputStream::State::finished() const {
  const std::lock_guard lock(mutex_);
  return finished_;
}

OutputStream::OutputStream(std::shared_ptr<State> state) : state_(std::move(state)) {}
OutputStream::OutputStream(OutputStream&&) noexcept = default;

OutputStream& OutputStream::operator=(OutputStream&& other) noexcept {
  const OutputStream previous(std::move(*this));  // cancelled at the end of this scope
  state_ = std::move(other.state_);
  return *this;
}

OutputStream::~OutputStream() {
  if (state_ == nullptr || state_->finished()) return;
  try {
    cancel();
  } catch (const std::exception& error) {
    log_warning("a request could not be cancelled: {}", error.what());
  }
}

std::optional<OutputDelta> OutputStream::next() {
  return state_->pop(/*wait=*/true);
}
std::optional<OutputDelta> OutputStream::poll() {
  return state_->pop(/*wait=*/false);
}
void OutputStream::cancel() {
  state_->cancel();
}

Completion collect(OutputStream& stream) {
  Completion completion;
  while (std::optional<OutputDelta> delta = stream.next()) {
    completion.text += delta->text;
    completion.tokens.insert(completion.tokens.end(),
                             std::make_move_iterator(delta->tokens.begin()),
                             std::make_move_iterator(delta->tokens.end()));
    completion.finish_reason = delta->finish_reason;
    completion.error = delta->error;
    completion.error_code = delta->error_code;
    completion.cached_tokens = delta->cached_tokens;
  }
  return completion;
}

}  // namespace deepinfer
