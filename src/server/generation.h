#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/api_error.h"
#include "server/choice.h"
#include "server/metrics.h"
#include "server/response_writer.h"

namespace deepinfer::server {

/// An answer in the making: the choices of one request, whose output becomes the bytes of the
/// answer's body. Destroying it cancels what still runs. Used by one thread at a time.
class Generation {
 public:
  /// `prompt_tokens`: of all prompts.
  Generation(std::vector<Choice> choices, std::unique_ptr<ResponseWriter> writer, bool stream,
             int64_t prompt_tokens, Clock::time_point arrival);
  Generation(const Generation&) = delete;
  Generation& operator=(const Generation&) = delete;
  ~Generation() = default;

  /// Appends to `out` what became of the answer since the last call. True when it is complete.
  bool advance(Clock::time_point now, Metrics& metrics, std::string& out);
  /// Counts choices that will not be finished.
  void abandon(Metrics& metrics) const;

  bool stream() const { return stream_; }
  /// Why the answer failed; only the answer of a stream holds that already.
  const std::optional<ApiError>& error() const { return error_; }
  /// Keeps something until the answer is complete or dropped.
  void keep(std::shared_ptr<void> ticket) { ticket_ = std::move(ticket); }

 private:
  struct Timing {
    std::optional<Clock::time_point> last_token = {};
    int64_t tokens = 0;  ///< Counted in the metrics so far.
    bool finished = false;
  };

  void count_tokens(const Choice& choice, Timing& timing, Clock::time_point now,
                    Metrics& metrics) const;
  void finish_choice(const Choice& choice, Metrics& metrics, std::string& out);
  Usage usage() const;

  std::shared_ptr<void> ticket_;  // first: released after the choices have been cancelled
  std::vector<Choice> choices_;
  std::vector<Timing> timings_;  // per choice
  std::unique_ptr<ResponseWriter> writer_;
  bool stream_;
  int64_t prompt_tokens_;
  Clock::time_point arrival_;
  bool begun_ = false;
  size_t num_finished_ = 0;
  std::optional<ApiError> error_;
};

}  // namespace deepinfer::server
