#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "text/json_value.h"
#include "text/prompt_builder.h"

namespace deepinfer::text {

/// A tool's name with its namespace in front, if it has one: "ns::name" (spec/checkpoint.md §4.4).
/// `holder` may have "namespace" (a string or {name, description}) and `function` too; a name may
/// be qualified already. Errors: kInvalidArgument, each beginning with `where`.
std::string qualified_name(const JsonValue& holder, const JsonValue& function,
                           const std::string& where);

/// The instructions for a list of tools (spec/checkpoint.md §4.5), beginning with "## Tools".
/// Errors: kInvalidArgument naming the entry of `where`.
void append_tool_instructions(const JsonValue& tools, const std::string& where,
                              PromptBuilder& prompt);

/// The calls of an assistant's turn as markup, without the newlines in front (§4.4). Errors:
/// kInvalidArgument naming the entry of `where`.
void append_tool_calls(const JsonValue& calls, const std::string& where, PromptBuilder& prompt);

}  // namespace deepinfer::text
