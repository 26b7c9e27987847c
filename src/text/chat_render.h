#pragma once

#include "deepinfer/chat.h"
#include "text/json_value.h"

namespace deepinfer::text {

/// render_chat() of a list of messages that has been parsed already. Errors: as there.
ChatPrompt render_messages(const JsonValue& messages, const ChatOptions& options);

}  // namespace deepinfer::text
