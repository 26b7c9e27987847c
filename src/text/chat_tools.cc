#include "text/chat_tools.h"

#include <fmt/format.h>

#include "base/error.h"

namespace deepinfer::text {
namespace {

using Kind = JsonValue::Kind;

// spec/checkpoint.md §4.5, up to and after the schemas.
constexpr std::string_view kInstructionsHead =
    R"(## Tools

You have access to a set of tools to help answer the user's question. You can invoke tools by writing a "<｜DSML｜ calls>" block like the following:

<｜DSML｜ calls>
<｜DSML｜ invoke name="$TOOL_NAME">
<｜DSML｜ parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</｜DSML｜ parameter>
...
</｜DSML｜ invoke>
<｜DSML｜ invoke name="$TOOL_NAME2">
...
</｜DSML｜ invoke>
</｜DSML｜ calls>

String parameters should be specified as is and set `string="true"`. For all other types (numbers, booleans, arrays, objects), pass the value in JSON format and set `string="false"`.

If thinking_mode is enabled (triggered by <think>), you MUST output your complete reasoning inside <think>...</think> BEFORE any tool calls or final response.

Otherwise, output directly after </think> with tool calls or final response.

### Available Tool Schemas

)";
constexpr std::string_view kInstructionsTail =
    R"(

You MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.
)";

const JsonValue& object_member(const JsonValue& object, std::string_view key,
                               const std::string& where) {
  const JsonValue* value = object.find(key);
  if (!object.is(Kind::kObject) || value == nullptr || !value->is(Kind::kObject)) {
    fail(ErrorCode::kInvalidArgument, "{}.{} is {}, expected an object", where, key,
         value == nullptr ? "missing" : describe(value->kind));
  }
  return *value;
}

bool is_absent(const JsonValue* value) {
  return value == nullptr || value->is(Kind::kNull);
}

/// Checks text that stands between quotes in the markup, which has no escapes.
void check_attribute(const std::string& text, const std::string& where) {
  if (text.empty() || text.find_first_of("\"\n\r") != std::string::npos ||
      text.find(kDsml) != std::string::npos) {
    fail(ErrorCode::kInvalidArgument,
         "{} is {}, but a name must not be empty or contain quotes, line ends or \"{}\"", where,
         quote_json(text.substr(0, 100)), kDsml);
  }
}

/// The decoded arguments of a call: an object. `holder` keeps what had to be parsed.
const JsonValue& decode_arguments(const JsonValue* arguments, const std::string& where,
                                  JsonValue& holder) {
  holder = JsonValue::object();
  if (is_absent(arguments)) return holder;
  if (arguments->is(Kind::kObject)) return *arguments;
  JsonValue value = *arguments;
  // Some clients encode the arguments' JSON twice.
  for (int i = 0; i < 2 && value.is(Kind::kString); ++i) {
    if (value.text.find_first_not_of(" \t\r\n") == std::string::npos) return holder;
    try {
      value = parse_json_value(value.text, where);
    } catch (const Error& error) {
      if (i == 0) fail(ErrorCode::kInvalidArgument, "{}", error.what());
      break;  // a JSON string whose text is no JSON: it is the argument
    }
  }
  if (value.is(Kind::kObject)) {
    holder = std::move(value);
  } else if (!value.is(Kind::kNull)) {
    holder.set("arguments", *arguments);
  }
  return holder;
}

void append_call(const JsonValue& call, const std::string& where, PromptBuilder& prompt) {
  const JsonValue& function = object_member(call, "function", where);
  prompt.markup("<｜DSML｜ invoke name=\"");
  prompt.text(qualified_name(call, function, where));
  prompt.text("\">\n");
  JsonValue holder;
  const JsonValue& arguments =
      decode_arguments(function.find("arguments"), where + ".function.arguments", holder);
  for (size_t i = 0; i < arguments.keys.size(); ++i) {
    check_attribute(arguments.keys[i], where + ".function.arguments: the name of a parameter");
    const JsonValue& value = arguments.values[i];
    const bool string = value.is(Kind::kString);
    if (i > 0) prompt.text("\n");
    prompt.markup("<｜DSML｜ parameter name=\"");
    prompt.text(arguments.keys[i]);
    prompt.text(string ? "\" string=\"true\">" : "\" string=\"false\">");
    prompt.text(string ? value.text : to_python_json(value));
    prompt.markup("</｜DSML｜ parameter>");
  }
  prompt.markup("\n</｜DSML｜ invoke>");
}

}  // namespace

std::string qualified_name(const JsonValue& holder, const JsonValue& function,
                           const std::string& where) {
  const JsonValue* name_value = function.find("name");
  if (is_absent(name_value) || !name_value->is(Kind::kString)) {
    fail(ErrorCode::kInvalidArgument, "{}.function.name is {}, expected a string", where,
         name_value == nullptr ? "missing" : describe(name_value->kind));
  }
  const JsonValue* space = holder.find("namespace");
  if (is_absent(space)) space = function.find("namespace");
  std::string prefix;
  if (!is_absent(space)) {
    const JsonValue* text = space->is(Kind::kObject) ? space->find("name") : space;
    if (is_absent(text) || !text->is(Kind::kString) || text->text.empty() ||
        text->text.find("::") != std::string::npos) {
      fail(ErrorCode::kInvalidArgument,
           "{}.namespace is {}, expected a name without \"::\" or an object with such a name",
           where, to_python_json(*space).substr(0, 100));
    }
    prefix = text->text;
  }
  std::string name = name_value->text;
  check_attribute(name, where + ".function.name");
  const size_t separator = name.find("::");
  if (separator != std::string::npos) {
    const std::string written = name.substr(0, separator);
    if ((!prefix.empty() && prefix != written) ||
        name.find("::", separator + 2) != std::string::npos) {
      fail(ErrorCode::kInvalidArgument,
           "{}.function.name is {}, which is not one name in one namespace{}", where,
           quote_json(name), prefix.empty() ? "" : fmt::format(" {}", quote_json(prefix)));
    }
    return name;
  }
  if (prefix.empty()) return name;
  check_attribute(prefix, where + ".namespace");
  return prefix + "::" + name;
}

void append_tool_instructions(const JsonValue& tools, const std::string& where,
                              PromptBuilder& prompt) {
  prompt.markup(kInstructionsHead);
  for (size_t i = 0; i < tools.values.size(); ++i) {
    const std::string entry = fmt::format("{}[{}]", where, i);
    const JsonValue& tool = tools.values[i];
    JsonValue function = object_member(tool, "function", entry);
    const std::string name = qualified_name(tool, function, entry);
    const JsonValue* space = tool.find("namespace");
    if (is_absent(space)) space = function.find("namespace");
    const JsonValue* about = space == nullptr ? nullptr : space->find("description");
    if (!is_absent(about) && about->is(Kind::kString) && !about->text.empty()) {
      const JsonValue* description = function.find("description");
      const bool known = !is_absent(description) && description->is(Kind::kString);
      function.set("description",
                   JsonValue::string(about->text + "\n" + (known ? description->text : "")));
    }
    function.set("name", JsonValue::string(name));
    function.erase("namespace");
    if (i > 0) prompt.text("\n");
    prompt.text(to_python_json(function));
  }
  prompt.markup(kInstructionsTail);
}

void append_tool_calls(const JsonValue& calls, const std::string& where, PromptBuilder& prompt) {
  prompt.markup("<｜DSML｜ calls>\n");
  for (size_t i = 0; i < calls.values.size(); ++i) {
    if (i > 0) prompt.text("\n");
    append_call(calls.values[i], fmt::format("{}[{}]", where, i), prompt);
  }
  prompt.markup("\n</｜DSML｜ calls>");
}

}  // namespace deepinfer::text
