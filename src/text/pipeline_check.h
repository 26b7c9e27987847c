#pragma once

#include <string_view>

#include "text/json_value.h"

namespace deepinfer::text {

/// Checks that a tokenizer.json describes the pipeline that this room implements: byte-level BPE
/// without options, no normaliser, DeepSeek's pre-tokeniser, the byte-level decoder. Truncation,
/// padding and the post-processor only matter to callers that ask for added tokens, and are
/// ignored. Errors: kUnsupported naming the part and its kind; kInvalidFile if the file is no
/// object.
void check_pipeline(const JsonValue& root, std::string_view source);

}  // namespace deepinfer::text
