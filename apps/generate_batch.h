#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "apps/interruption.h"
#include "apps/json_input.h"
#include "apps/line_reader.h"
#include "apps/output.h"
#include "base/progress.h"
#include "deepinfer/chat.h"
#include "deepinfer/engine.h"

namespace deepinfer::apps {

/// Runs a file of requests through an engine: many at once, their records in input order. Holds a
/// bounded number of requests, whatever the size of the file. Used by one thread.
class GenerateBatch {
 public:
  struct Limits {
    int64_t requests = 64;            ///< Most requests between their line and their record.
    int64_t prompt_tokens = 1 << 22;  ///< Most tokens of their prompts, if there are several.
  };
  /// `defaults` holds for the fields that a line does not give, `chat` for lines with messages.
  GenerateBatch(Engine& engine, LineReader& input, Output& output, const SamplingParams& defaults,
                const ChatOptions& chat, const Limits& limits, Interruption& interruption);

  /// Writes one record per line, each as soon as those before it are written. Stops between two
  /// records when interrupted. Errors: those of reading the input and writing the output.
  void run();

  int64_t num_records() const { return num_records_; }
  int64_t num_errors() const { return num_errors_; }

 private:
  struct Pending {
    std::string id_json;
    std::string where;  ///< "FILE line 3": for errors.
    int64_t prompt_tokens = 0;
    bool logprobs = false;
    std::optional<OutputStream> stream;  ///< Nothing once the request has finished.
    Completion completion;
  };

  void fill();
  void submit(const Line& line);
  void advance();
  void absorb(Pending& pending, OutputDelta delta);
  void write_finished();
  void show_progress();

  Engine& engine_;
  LineReader& input_;
  Output& output_;
  const SamplingParams& defaults_;
  const ChatOptions& chat_;
  Limits limits_;
  Interruption& interruption_;
  std::string fingerprint_;
  std::deque<Pending> pending_;  ///< In input order.
  std::optional<ProgressBar> progress_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  bool at_end_ = false;
  int64_t pending_prompt_tokens_ = 0;
  int64_t num_finished_ = 0;
  int64_t num_tokens_ = 0;
  int64_t num_records_ = 0;
  int64_t num_errors_ = 0;
};

}  // namespace deepinfer::apps
