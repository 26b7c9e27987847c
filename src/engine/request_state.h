#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "deepinfer/engine.h"
#include "engine/output_stream.h"
#include "sampling/stop_matcher.h"

namespace deepinfer::engine {

/// A request that generates, as the engine thread sees it: turns drawn tokens into deltas and knows
/// when to end.
class RequestState {
 public:
  /// `max_new_tokens`: after how many tokens the context is full or the request satisfied.
  /// `tokenizer` may be null.
  RequestState(Request request, std::shared_ptr<OutputStream::State> stream, uint64_t seed,
               int64_t max_new_tokens, int32_t eos_token, const Tokenizer* tokenizer);
  /// A request that is dropped without an end (the engine stops) ends as cancelled.
  ~RequestState();
  RequestState(const RequestState&) = delete;
  RequestState& operator=(const RequestState&) = delete;

  /// Takes a drawn token and pushes its delta. True when the request has ended with it.
  bool accept(GeneratedToken token);
  /// Ends the request for another reason; text that was held back comes first.
  void finish(FinishReason reason, const std::string& error = "",
              ErrorCode code = ErrorCode::kInternal);

  const Request& request() const { return *request_; }
  /// Lives as long as somebody has it, though the request may end.
  std::shared_ptr<const SamplingParams> shared_sampling() const {
    return {request_, &request_->sampling};
  }
  int64_t prompt_tokens() const { return static_cast<int64_t>(request_->prompt.size()); }
  int64_t max_new_tokens() const { return max_new_tokens_; }
  /// Whether the tokens seen so far change what is drawn.
  bool has_penalty() const;
  void set_cached_tokens(int64_t tokens) { cached_tokens_ = tokens; }
  uint64_t seed() const { return seed_; }
  int32_t eos_token() const { return eos_token_; }
  const std::vector<int32_t>& output() const { return output_; }

 private:
  bool is_end_token(int32_t token) const;

  // Shared with steps that may outlive the request by one.
  std::shared_ptr<const Request> request_;
  std::shared_ptr<OutputStream::State> stream_;
  uint64_t seed_;
  int64_t max_new_tokens_;
  int32_t eos_token_;
  std::optional<IncrementalDetokenizer> detokenizer_;
  sampling::StopMatcher stop_matcher_;
  std::vector<int32_t> output_;
  int64_t cached_tokens_ = 0;
};

}  // namespace deepinfer::engine
