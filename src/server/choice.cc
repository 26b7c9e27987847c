#include "server/choice.h"

#include <algorithm>
#include <utility>

namespace deepinfer::server {

Choice::Choice(OutputStream stream, ChoiceOptions options)
    : stream_(std::move(stream)),
      options_(std::move(options)),
      in_reasoning_(options_.parser && options_.parser->in_reasoning) {
  if (options_.parser) parser_.emplace(*options_.parser, options_.tokenizer);
}

bool Choice::advance(ChoiceDelta& delta) {
  bool any = false;
  while (stream_) {
    std::optional<OutputDelta> from_engine = stream_->poll();
    if (!from_engine) break;
    any = true;
    take(std::move(*from_engine), delta);
    if (finished()) stream_.reset();
  }
  return any;
}

void Choice::take(OutputDelta from_engine, ChoiceDelta& delta) {
  cached_tokens_ = from_engine.cached_tokens;
  for (GeneratedToken& token : from_engine.tokens) {
    if (!take_token(std::move(token), delta)) continue;
    // A stop string of the content: the engine knows nothing of it and would go on.
    finish(FinishReason::kStop, delta);
    return;
  }
  if (!parser_) delta.message.content += from_engine.text;
  if (from_engine.finish_reason == FinishReason::kNone) return;
  error_ = std::move(from_engine.error);
  error_code_ = from_engine.error_code;
  finish(from_engine.finish_reason, delta);
}

bool Choice::take_token(GeneratedToken token, ChoiceDelta& delta) {
  ++completion_tokens_;
  if (in_reasoning_) {
    ++reasoning_tokens_;
    in_reasoning_ = token.id != options_.end_think;
  }
  if (std::ranges::find(options_.end_tokens, token.id) != options_.end_tokens.end()) return false;
  const int32_t id = token.id;
  delta.tokens.push_back(std::move(token));
  if (!parser_ || id == options_.ignored_token) return false;
  add(parser_->push_token(id), delta);
  return parser_->ended();
}

void Choice::add(ChatDelta message, ChoiceDelta& delta) {
  if (!options_.tools_offered) message.tool_calls.clear();
  num_calls_ += static_cast<int64_t>(message.tool_calls.size());
  delta.message.append(std::move(message));
}

void Choice::finish(FinishReason reason, ChoiceDelta& delta) {
  if (parser_) add(parser_->finish(reason == FinishReason::kStop), delta);
  switch (reason) {
    case FinishReason::kStop:
      finish_reason_ = num_calls_ > 0 ? "tool_calls" : "stop";
      return;
    case FinishReason::kLength:
      finish_reason_ = "length";
      return;
    case FinishReason::kNone:
    case FinishReason::kCancelled:
      error_ = "the server stops and ended the request";
      error_code_ = ErrorCode::kResourceExhausted;
      break;
    case FinishReason::kError:
      break;
  }
  finish_reason_ = "error";
}

}  // namespace deepinfer::server
