#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>

#include "deepinfer/engine.h"

namespace deepinfer {

/// The queue between the engine thread, which pushes, and the stream's reader.
struct OutputStream::State {
  /// Appends a delta; nothing may follow one with a finish reason.
  void push(OutputDelta delta);
  std::optional<OutputDelta> pop(bool wait);
  /// Whether the last delta has been pushed.
  bool finished() const;

  std::function<void()>
      cancel;  // set once, before the reader sees the state; any thread may call it

 private:
  mutable std::mutex mutex_;  // guards everything below
  std::condition_variable ready_;
  std::deque<OutputDelta> deltas_;
  bool finished_ = false;  // the last delta has been pushed
};

}  // namespace deepinfer
