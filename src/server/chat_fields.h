#pragma once

#include "server/fields.h"

namespace deepinfer::server {

// Readers of the fields that say what the conversation is.

/// Checks every message and part: what the encoder would leave out is refused by name, `developer`
/// becomes `system`, `prefix` of the last message continues it.
void read_messages(ApiRequest& request, const FieldValue& value);
void read_tools(ApiRequest& request, const FieldValue& value);
void read_tool_choice(ApiRequest& request, const FieldValue& value);
void read_effort(ApiRequest& request, const FieldValue& value);
void read_thinking(ApiRequest& request, const FieldValue& value);
void read_template_kwargs(ApiRequest& request, const FieldValue& value);
void read_continue(ApiRequest& request, const FieldValue& value);

/// /v1/responses: items become messages.
void read_input(ApiRequest& request, const FieldValue& value);
void read_instructions(ApiRequest& request, const FieldValue& value);
void read_reasoning(ApiRequest& request, const FieldValue& value);

}  // namespace deepinfer::server
