#include "apps/generate_batch.h"

#include <fmt/format.h>
#include <unistd.h>

#include <iterator>
#include <utility>

#include "apps/engine_setup.h"
#include "apps/records.h"

namespace deepinfer::apps {

GenerateBatch::GenerateBatch(Engine& engine, LineReader& input, Output& output,
                             const SamplingParams& defaults, const ChatOptions& chat,
                             const Limits& limits, Interruption& interruption)
    : engine_(engine),
      input_(input),
      output_(output),
      defaults_(defaults),
      chat_(chat),
      limits_(limits),
      interruption_(interruption),
      fingerprint_(engine.system_fingerprint()) {
  // Records on the same terminal would run into the bar.
  if (::isatty(STDERR_FILENO) == 0 || output.is_terminal()) return;
  if (const std::optional<int64_t> lines = input.count_lines())
    progress_.emplace("generate", *lines, "requests");
}

void GenerateBatch::run() {
  while (!interruption_.requested()) {
    fill();
    if (pending_.empty() && at_end_) return;
    advance();
    write_finished();
    show_progress();
  }
}

/// Reads and submits lines while there is room. Waits for a line only when nothing is running: the
/// writer of a pipe may itself wait for a record.
void GenerateBatch::fill() {
  Line line;
  while (!at_end_ && std::ssize(pending_) < limits_.requests &&
         (pending_.empty() || pending_prompt_tokens_ < limits_.prompt_tokens)) {
    switch (input_.next(line, pending_.empty(), interruption_.fd())) {
      case LineReader::Status::kLine:
        submit(line);
        break;
      case LineReader::Status::kNotYet:
        return;
      case LineReader::Status::kEnd:
        at_end_ = true;
        break;
    }
  }
}

void GenerateBatch::submit(const Line& line) {
  Entry entry = parse_generate_line(line, input_.name(), defaults_);
  Pending& pending = pending_.emplace_back();
  pending.id_json = std::move(entry.id_json);
  pending.where = fmt::format("{} line {}", input_.name(), line.number);
  pending.logprobs = entry.sampling.logprobs.has_value();
  std::string error = std::move(entry.error);
  if (error.empty()) {
    try {
      std::vector<int32_t> prompt = take_tokens(entry, engine_, chat_);
      pending.prompt_tokens = std::ssize(prompt);
      pending.stream = engine_.submit({.prompt = std::move(prompt),
                                       .sampling = std::move(entry.sampling),
                                       .priority = entry.priority,
                                       .cache_salt = std::move(entry.cache_salt)});
    } catch (const Error& refusal) {
      // A fault of the program is not the line's.
      if (refusal.code() == ErrorCode::kInternal) throw;
      error = fmt::format("{}: {}", pending.where, refusal.what());
    }
  }
  pending_prompt_tokens_ += pending.prompt_tokens;
  if (error.empty()) return;
  pending.completion.finish_reason = FinishReason::kError;
  pending.completion.error = std::move(error);
  ++num_finished_;
}

/// Waits for news of the first request and takes what there is of the others.
void GenerateBatch::advance() {
  bool first = true;
  for (Pending& pending : pending_) {
    if (pending.stream) {
      std::optional<OutputDelta> delta;
      if (first) {
        interruption_.watch(&*pending.stream);
        delta = pending.stream->next();
        interruption_.watch(nullptr);
      } else {
        delta = pending.stream->poll();
      }
      if (delta) absorb(pending, std::move(*delta));
    }
    first = false;
  }
}

void GenerateBatch::absorb(Pending& pending, OutputDelta delta) {
  Completion& completion = pending.completion;
  num_tokens_ += std::ssize(delta.tokens);
  completion.text += delta.text;
  std::move(delta.tokens.begin(), delta.tokens.end(), std::back_inserter(completion.tokens));
  if (delta.finish_reason == FinishReason::kNone) return;
  completion.finish_reason = delta.finish_reason;
  if (!delta.error.empty()) completion.error = fmt::format("{}: {}", pending.where, delta.error);
  pending.stream.reset();
  ++num_finished_;
}

void GenerateBatch::write_finished() {
  while (!pending_.empty() && !pending_.front().stream && !interruption_.requested()) {
    const Pending& first = pending_.front();
    output_.write(to_json_line({.id_json = first.id_json,
                                .completion = &first.completion,
                                .prompt_tokens = first.prompt_tokens,
                                .logprobs = first.logprobs,
                                .system_fingerprint = fingerprint_}));
    ++num_records_;
    if (first.completion.finish_reason == FinishReason::kError) ++num_errors_;
    pending_prompt_tokens_ -= first.prompt_tokens;
    pending_.pop_front();
  }
}

void GenerateBatch::show_progress() {
  if (!progress_) return;
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start_;
  progress_->update(num_finished_, fmt::format("{:.1f} tokens/s",
                                               static_cast<double>(num_tokens_) / elapsed.count()));
}

}  // namespace deepinfer::apps
