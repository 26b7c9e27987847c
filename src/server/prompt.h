#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "deepinfer/chat.h"
#include "deepinfer/tokenizer.h"
#include "server/api_request.h"

namespace deepinfer::server {

/// A prompt as the engine takes it.
struct EncodedPrompt {
  std::vector<int32_t> ids = {};
  bool in_reasoning = false;  ///< ChatPrompt's, for the parser of the answer.
  bool continues = false;
};

/// What the served model knows of conversations.
struct PromptContext {
  const Tokenizer* tokenizer = nullptr;  ///< Null: prompts are token ids.
  int64_t vocab_size = 0;
  bool thinking = true;     ///< For requests that do not say.
  std::string effort = {};  ///< For requests that do not say; empty: the encoder's default.
};

/// Whether a vocabulary has every mark that a conversation with reasoning needs.
bool knows_reasoning(const Tokenizer* tokenizer);

/// The request's prompts in order; a conversation is one. Errors: ApiError naming the field.
std::vector<EncodedPrompt> encode_prompts(const ApiRequest& request, const PromptContext& context);

/// The tools as JSON text, or nothing; for the prompt and for reading calls.
std::string offered_tools(const ApiRequest& request);

}  // namespace deepinfer::server
