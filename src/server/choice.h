#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "deepinfer/chat.h"
#include "deepinfer/engine.h"

namespace deepinfer::server {

/// What a choice said since the last look.
struct ChoiceDelta {
  ChatDelta message = {};                   ///< Completions: `content` alone.
  std::vector<GeneratedToken> tokens = {};  ///< Without the end token.

  bool empty() const {
    return message.reasoning.empty() && message.content.empty() && message.tool_calls.empty() &&
           tokens.empty();
  }
};

/// How a choice's tokens are read.
struct ChoiceOptions {
  int64_t index = 0;
  bool counts_cached =
      true;  ///< Its prompt's cached tokens count: those of one choice per prompt do.
  std::optional<ChatParserOptions> parser = {};  ///< Nothing: the engine's text is the answer.
  const Tokenizer* tokenizer = nullptr;
  std::vector<int32_t> end_tokens = {};
  std::optional<int32_t> ignored_token = {};  ///< An end token that the request ignores.
  std::optional<int32_t> end_think = {};      ///< The id of </think>.
  bool tools_offered = true;
};

/// One choice of an answer: reads a stream of the engine. Used by one thread at a time.
class Choice {
 public:
  Choice(OutputStream stream, ChoiceOptions options);

  /// Takes everything that the engine has produced. False if there was nothing. Errors of the
  /// engine end the choice: error().
  bool advance(ChoiceDelta& delta);
  /// Ends the request in the engine, if it still runs.
  void cancel() { stream_.reset(); }

  int64_t index() const { return options_.index; }
  bool finished() const { return !finish_reason_.empty(); }
  /// "stop", "length", "tool_calls"; "error"; empty while running.
  const std::string& finish_reason() const { return finish_reason_; }
  const std::string& error() const { return error_; }
  ErrorCode error_code() const { return error_code_; }
  int64_t completion_tokens() const { return completion_tokens_; }
  int64_t reasoning_tokens() const { return reasoning_tokens_; }
  /// Tokens of its prompt that were found in the cache; 0 unless ChoiceOptions::counts_cached.
  int64_t cached_tokens() const { return options_.counts_cached ? cached_tokens_ : 0; }
  /// Calls of tools so far.
  int64_t num_calls() const { return num_calls_; }

 private:
  void take(OutputDelta from_engine, ChoiceDelta& delta);
  /// True when the answer has ended with this token, whatever the engine goes on to produce.
  bool take_token(GeneratedToken token, ChoiceDelta& delta);
  void add(ChatDelta message, ChoiceDelta& delta);
  void finish(FinishReason reason, ChoiceDelta& delta);

  std::optional<OutputStream> stream_;
  ChoiceOptions options_;
  std::optional<ChatParser> parser_;
  bool in_reasoning_;
  std::string finish_reason_;
  std::string error_;
  ErrorCode error_code_ = ErrorCode::kInternal;
  int64_t completion_tokens_ = 0;
  int64_t reasoning_tokens_ = 0;
  int64_t cached_tokens_ = 0;
  int64_t num_calls_ = 0;
};

}  // namespace deepinfer::server
