#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "deepinfer/chat.h"
#include "deepinfer/engine.h"
#include "server/response_writer.h"

namespace deepinfer::server {

// Parts of answers. All functions append.

/// `text` as a JSON string; bytes that are not UTF-8 become U+FFFD.
void append_string(std::string& out, std::string_view text);
void append_integer(std::string& out, int64_t value);
/// The shortest text that reads back to the same number. Minus infinity, which JSON lacks, becomes
/// -9999 as in OpenAI's API.
void append_logprob(std::string& out, float logprob);

/// {"prompt_tokens", …} with the details of cached and reasoning tokens.
void append_usage(std::string& out, const Usage& usage);

/// {"content": [{"token", "logprob", "bytes", "top_logprobs"}, …], "refusal": null}
void append_chat_logprobs(std::string& out, const Tokenizer& tokenizer,
                          std::span<const GeneratedToken> tokens);

/// {"text_offset", "token_logprobs", "tokens", "top_logprobs"}; offsets count characters from
/// `offset`, which moves on.
void append_completion_logprobs(std::string& out, const Tokenizer* tokenizer,
                                std::span<const GeneratedToken> tokens, int64_t& offset);

/// [{"index", "id", "type", "function"}, …]; the first has number `first`. Answers that are no
/// streams have no index: `first` < 0.
void append_tool_calls(std::string& out, std::span<const ChatToolCall> calls, int64_t first);

}  // namespace deepinfer::server
