#pragma once

#include <mutex>
#include <thread>

#include "deepinfer/engine.h"

namespace deepinfer::apps {

/// While it lives, the first SIGINT or SIGTERM asks the program to end cleanly, and the second ends
/// it at once. One at a time per process.
class Interruption {
 public:
  Interruption();
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;
  ~Interruption();

  bool requested() const;
  /// 128 + the signal, as shells report it.
  int exit_code() const;
  /// Becomes and stays readable once requested: for poll().
  int fd() const { return event_fd_; }

  /// The stream that somebody waits for: an interruption cancels it, also one that has already
  /// happened. Null: none. The stream must outlive its watch.
  void watch(OutputStream* stream);

 private:
  void wait();

  int event_fd_ = -1;
  int stop_fd_ = -1;
  std::mutex mutex_;
  OutputStream* watched_ = nullptr;  ///< Guarded by mutex_.
  std::thread watcher_;
};

}  // namespace deepinfer::apps
