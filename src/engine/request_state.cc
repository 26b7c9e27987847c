#include "engine/request_state.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/log.h"
#include "sampling/sample_row.h"

namespace deepinfer::engine {

RequestState::RequestState(Request request, std::shared_ptr<OutputStream::State> stream,
                           uint64_t seed, int64_t max_new_tokens, int32_t eos_token,
                           const Tokenizer* tokenizer)
    : request_(std::make_shared<const Request>(std::move(request))),
      stream_(std::move(stream)),
      seed_(seed),
      max_new_tokens_(max_new_tokens),
      eos_token_(eos_token),
      stop_matcher_(request_->sampling.stop) {
  if (tokenizer != nullptr) detokenizer_.emplace(*tokenizer);
}

RequestState::~RequestState() {
  if (stream_->finished()) return;
  try {
    finish(FinishReason::kCancelled);
  } catch (const std::exception& error) {
    log_warning("a request ended without telling its reader: {}", error.what());
  }
}

bool RequestState::has_penalty() const {
  return ops::has_penalty(sampling::sample_row(request_->sampling, seed_, eos_token_, 0));
}

bool RequestState::is_end_token(int32_t token) const {
  const SamplingParams& sampling = request_->sampling;
  return (token == eos_token_ && !sampling.ignore_eos) ||
         std::ranges::find(sampling.stop_token_ids, token) != sampling.stop_token_ids.end();
}

bool RequestState::accept(GeneratedToken token) {
  const int32_t id = token.id;
  output_.push_back(id);
  OutputDelta delta;
  delta.tokens.push_back(std::move(token));
  delta.cached_tokens = cached_tokens_;

  bool stopped = is_end_token(id);
  if (!stopped && detokenizer_) {
    sampling::StopMatcher::Piece piece = stop_matcher_.feed(detokenizer_->push(id));
    delta.text = std::move(piece.text);
    stopped = piece.matched;
  }
  const bool full = static_cast<int64_t>(output_.size()) >= max_new_tokens_;
  stream_->push(std::move(delta));
  if (stopped || full) finish(stopped ? FinishReason::kStop : FinishReason::kLength);
  return stopped || full;
}

void RequestState::finish(FinishReason reason, const std::string& error, ErrorCode code) {
  OutputDelta delta;
  delta.finish_reason = reason;
  delta.error = error;
  delta.error_code = code;
  delta.cached_tokens = cached_tokens_;
  if (detokenizer_) {
    sampling::StopMatcher::Piece piece = stop_matcher_.feed(detokenizer_->finish());
    delta.text = std::move(piece.text);
    if (piece.matched && reason == FinishReason::kLength) delta.finish_reason = FinishReason::kStop;
    delta.text += stop_matcher_.flush();
  }
  stream_->push(std::move(delta));
}

}  // namespace deepinfer::engine
