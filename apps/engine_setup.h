#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "apps/cli.h"
#include "apps/json_input.h"
#include "deepinfer/engine.h"

namespace deepinfer::apps {

/// Declares the flags that generate and score share: the model and how to run it.
void add_engine_flags(Flags& flags, EngineOptions& options);

/// Encodes a text; spellings of special tokens become those tokens. `what` names the text in the
/// kInvalidArgument error when the model has no tokenizer.
std::vector<int32_t> encode(const Engine& engine, std::string_view text, std::string_view what);

/// Takes the token ids out of an entry, encoding its text if it has one. Errors: kInvalidArgument.
std::vector<int32_t> take_tokens(Entry& entry, const Engine& engine);

}  // namespace deepinfer::apps
