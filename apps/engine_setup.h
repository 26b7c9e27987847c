#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "apps/cli.h"
#include "apps/json_input.h"
#include "deepinfer/chat.h"
#include "deepinfer/engine.h"

namespace deepinfer::apps {

/// Declares the flags that generate and score share: the model and how to run it.
void add_engine_flags(Flags& flags, EngineOptions& options);

/// Encodes a text; spellings of special tokens become those tokens. `what` names the text in the
/// kInvalidArgument error when the model has no tokenizer.
std::vector<int32_t> encode(const Engine& engine, std::string_view text, std::string_view what);

/// The tokens of a conversation. Errors: those of render_chat and encode_chat; kInvalidArgument
/// when the model has no tokenizer.
std::vector<int32_t> encode_messages(const Engine& engine, std::string_view messages,
                                     const ChatOptions& chat);

/// Takes the token ids out of an entry, encoding its text or its messages if it has such. Errors:
/// kInvalidArgument, kUnsupported.
std::vector<int32_t> take_tokens(Entry& entry, const Engine& engine, const ChatOptions& chat = {});

}  // namespace deepinfer::apps
