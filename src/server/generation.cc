#include "server/generation.h"

#include <utility>

namespace deepinfer::server {
namespace {

double seconds(Clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

Generation::Generation(std::vector<Choice> choices, std::unique_ptr<ResponseWriter> writer,
                       bool stream, int64_t prompt_tokens, Clock::time_point arrival)
    : choices_(std::move(choices)),
      timings_(choices_.size()),
      writer_(std::move(writer)),
      stream_(stream),
      prompt_tokens_(prompt_tokens),
      arrival_(arrival) {}

bool Generation::advance(Clock::time_point now, Metrics& metrics, std::string& out) {
  if (!begun_) {
    begun_ = true;
    writer_->begin(out);
  }
  for (size_t i = 0; i < choices_.size(); ++i) {
    Choice& choice = choices_[i];
    if (timings_[i].finished) continue;
    ChoiceDelta delta;
    if (!choice.advance(delta)) continue;
    count_tokens(choice, timings_[i], now, metrics);
    writer_->delta(choice, std::move(delta), out);
    if (!choice.finished()) continue;
    timings_[i].finished = true;
    ++num_finished_;
    finish_choice(choice, metrics, out);
    if (error_) return true;
  }
  if (num_finished_ < choices_.size()) return false;
  metrics.prompt_tokens += prompt_tokens_;
  metrics.cached_tokens += usage().cached_tokens;
  metrics.request_prompt_tokens.add(static_cast<double>(prompt_tokens_));
  metrics.end_to_end.add(seconds(now - arrival_));
  writer_->end(usage(), out);
  return true;
}

void Generation::count_tokens(const Choice& choice, Timing& timing, Clock::time_point now,
                              Metrics& metrics) const {
  const int64_t fresh = choice.completion_tokens() - timing.tokens;
  if (fresh == 0) return;
  timing.tokens += fresh;
  metrics.generation_tokens += fresh;
  if (timing.last_token) {
    // Tokens that arrived together share the time since those before.
    metrics.inter_token_latency.add(seconds(now - *timing.last_token) / static_cast<double>(fresh),
                                    fresh);
  } else {
    metrics.time_to_first_token.add(seconds(now - arrival_));
  }
  timing.last_token = now;
}

void Generation::finish_choice(const Choice& choice, Metrics& metrics, std::string& out) {
  ++metrics.finished[choice.finish_reason()];
  metrics.request_generation_tokens.add(static_cast<double>(choice.completion_tokens()));
  if (choice.finish_reason() != "error") {
    writer_->finish(choice, out);
    return;
  }
  // One answer cannot be half an error: the other choices end too.
  error_.emplace(http_status(choice.error_code()), choice.error());
  for (Choice& other : choices_) other.cancel();
  writer_->error(*error_, out);
}

void Generation::abandon(Metrics& metrics) const {
  for (const Timing& timing : timings_) {
    if (!timing.finished) ++metrics.finished["abort"];
  }
}

Usage Generation::usage() const {
  Usage usage{.prompt_tokens = prompt_tokens_};
  for (const Choice& choice : choices_) {
    usage.cached_tokens += choice.cached_tokens();
    usage.completion_tokens += choice.completion_tokens();
    usage.reasoning_tokens += choice.reasoning_tokens();
  }
  return usage;
}

}  // namespace deepinfer::server
