#include "server/fields.h"

#include <array>
#include <limits>
#include <vector>

#include "server/api_error.h"
#include "server/chat_fields.h"
#include "server/sampling_fields.h"

namespace deepinfer::server {
namespace {

constexpr std::string_view kNoStructure = "structured outputs are not built in yet";
constexpr std::string_view kNoTemplates = "the encoding belongs to the model";

void read_prompt(ApiRequest& request, const FieldValue& value);
void read_suffix(ApiRequest& request, const FieldValue& value) {
  request.suffix = value.string();
}
void read_echo(ApiRequest& request, const FieldValue& value) {
  request.echo = value.boolean();
}
void read_completion_logprobs(ApiRequest& request, const FieldValue& value) {
  request.wants_logprobs = true;
  request.top_logprobs = static_cast<int32_t>(value.integer(0, SamplingParams::kMaxLogprobs));
}
void read_chat_logprobs(ApiRequest& request, const FieldValue& value) {
  request.wants_logprobs = value.boolean();
}
void read_top_logprobs(ApiRequest& request, const FieldValue& value) {
  request.top_logprobs = static_cast<int32_t>(value.integer(0, SamplingParams::kMaxLogprobs));
}
void read_tokens(ApiRequest& request, const FieldValue& value) {
  request.tokens = value.ids();
}

/// prompt: a text, ids, or a list of either.
void read_prompt(ApiRequest& request, const FieldValue& value) {
  using Kind = text::JsonValue::Kind;
  constexpr std::string_view kExpected =
      "a string, a list of token ids, or a list of such with at least one entry";
  constexpr size_t kMaxPrompts = 4096;  // what may be copied before the choices are counted
  if (value.json().is(Kind::kString)) {
    request.prompts.push_back({.text = value.string()});
    return;
  }
  if (!value.json().is(Kind::kArray) || value.json().values.empty()) value.fail(kExpected);
  if (value.json().values.front().is(Kind::kNumber)) {
    request.prompts.push_back({.ids = value.ids(), .is_ids = true});
    return;
  }
  if (value.json().values.size() > kMaxPrompts) value.fail("fewer prompts in one request");
  for (size_t i = 0; i < value.json().values.size(); ++i) {
    const FieldValue item = value.item(i);
    if (item.json().is(Kind::kString)) {
      request.prompts.push_back({.text = item.string()});
    } else if (item.json().is(Kind::kArray)) {
      request.prompts.push_back({.ids = item.ids(), .is_ids = true});
    } else {
      item.fail("a string or a list of token ids");
    }
  }
}

// Fields that several routes have, in the order of the documentation.
constexpr std::array kGenerationFields = std::to_array<Field>({
    {"model", Support::kYes, "the served name; absent: whichever is served", read_model},
    {"stream", Support::kYes, "true: server-sent events", read_stream},
    {"temperature", Support::kYes, "0 to 100, default 1; 0: always the likeliest token",
     read_number<&SamplingParams::temperature>},
    {"top_p", Support::kYes, "above 0, at most 1; default 1", read_number<&SamplingParams::top_p>},
    {"top_k", Support::kYes, "the k likeliest tokens; 0 or -1: off (default)", read_top_k},
    {"min_p", Support::kYes, "0 to 1, default 0", read_number<&SamplingParams::min_p>},
    {"frequency_penalty", Support::kYes, "-2 to 2, default 0",
     read_number<&SamplingParams::frequency_penalty>},
    {"presence_penalty", Support::kYes, "-2 to 2, default 0",
     read_number<&SamplingParams::presence_penalty>},
    {"repetition_penalty", Support::kYes, "0.01 to 100, default 1",
     read_number<&SamplingParams::repetition_penalty>},
    {"seed", Support::kYes, "an integer: the same seed, the same tokens; absent: a new one",
     read_seed},
    {"stop", Support::kYes, "a string or up to 64; the text ends before the first", read_stop},
    {"stop_token_ids", Support::kYes, "token ids that end the output", read_stop_token_ids},
    {"min_tokens", Support::kYes, "no end before so many tokens; default 0", read_min_tokens},
    {"ignore_eos", Support::kYes, "true: the end token is like any other", read_ignore_eos},
    {"logit_bias", Support::kYes, "{\"token id\": -100 to 100}, at most 16,384 entries",
     read_logit_bias},
    {"cache_salt", Support::kYes,
     "requests share cached prefixes only with those of the same salt; 1 to 1,024 bytes",
     read_cache_salt},
    {"priority", Support::kYes, "-100 to 100, default 0: higher ones are served sooner",
     read_priority},
    {"user", Support::kNoEffect, "an identifier"},
    {"safety_identifier", Support::kNoEffect, "an identifier"},
    {"prompt_cache_key", Support::kNoEffect, "prefixes are found by their tokens"},
    {"metadata", Support::kNoEffect, "nothing is stored"},
    {"service_tier", Support::kFixed, "there is one tier", nullptr, "\"auto\" | \"default\""},
    {"store", Support::kFixed, "nothing is stored", nullptr, "false"},
    {"use_beam_search", Support::kFixed, "", nullptr, "false"},
    {"skip_special_tokens", Support::kFixed, "", nullptr, "true"},
    {"spaces_between_special_tokens", Support::kFixed, "", nullptr, "true | false"},
    {"include_stop_str_in_output", Support::kFixed, "", nullptr, "false"},
    {"return_token_ids", Support::kFixed, "", nullptr, "false"},
    {"return_tokens_as_token_ids", Support::kFixed, "", nullptr, "false"},
    {"length_penalty", Support::kFixed, "of beam search", nullptr, "1 | 1.0"},
    {"prompt_logprobs", Support::kNo, "deepinfer score computes them"},
    {"allowed_token_ids", Support::kNo, "logit_bias can favour tokens"},
    {"bad_words", Support::kNo, "logit_bias can forbid tokens"},
    {"logits_processors", Support::kNo, "no code from requests"},
    {"truncate_prompt_tokens", Support::kNo, "a prompt that is too long is refused"},
    {"kv_transfer_params", Support::kNo, "caches are not handed over yet"},
    {"response_format", Support::kFixed, kNoStructure, nullptr, "{\"type\": \"text\"}"},
    {"structured_outputs", Support::kNo, kNoStructure},
    {"guided_json", Support::kNo, kNoStructure},
    {"guided_regex", Support::kNo, kNoStructure},
    {"guided_choice", Support::kNo, kNoStructure},
    {"guided_grammar", Support::kNo, kNoStructure},
});

constexpr std::array kManyFields = std::to_array<Field>({
    {"stream_options", Support::kYes, "{\"include_usage\": bool}, with stream only",
     read_stream_options},
    {"n", Support::kYes, "choices per prompt; default 1", read_n},
});

constexpr std::array kChatFields = std::to_array<Field>({
    {"messages", Support::kYes, "see below; images are refused", read_messages},
    {"max_tokens", Support::kYes, "at least 1; default: what the context leaves", read_max_tokens},
    {"max_completion_tokens", Support::kYes, "the same", read_max_tokens},
    {"logprobs", Support::kYes, "true: log-probabilities of every token, markup included",
     read_chat_logprobs},
    {"top_logprobs", Support::kYes, "0 to 20 likeliest tokens, with logprobs", read_top_logprobs},
    {"tools", Support::kYes, "functions; strict is refused", read_tools},
    {"tool_choice", Support::kYes,
     "\"auto\", \"none\"; \"required\" and named ones need structured outputs", read_tool_choice},
    {"parallel_tool_calls", Support::kFixed, "the model decides", nullptr, "true"},
    {"reasoning_effort", Support::kYes,
     "\"low\", \"high\", \"max\", 1 to 100, or \"none\": no reasoning", read_effort},
    {"thinking", Support::kYes, "{\"type\": \"enabled\" or \"disabled\"}", read_thinking},
    {"chat_template_kwargs", Support::kYes,
     "{\"thinking\": bool, \"enable_thinking\": bool, \"reasoning_effort\"}", read_template_kwargs},
    {"continue_final_message", Support::kYes,
     "true: the last message is an assistant's that goes on", read_continue},
    {"add_generation_prompt", Support::kFixed, "", nullptr, "true"},
    {"add_special_tokens", Support::kFixed, kNoTemplates, nullptr, "false"},
    {"echo", Support::kFixed, "", nullptr, "false"},
    {"modalities", Support::kFixed, "", nullptr, "[\"text\"]"},
    {"verbosity", Support::kNo, "reasoning_effort sets how much is thought"},
    {"functions", Support::kNo, "use tools"},
    {"function_call", Support::kNo, "use tool_choice"},
    {"audio", Support::kNo, "the model knows no sound"},
    {"prediction", Support::kNo, "the model drafts by itself"},
    {"web_search_options", Support::kNo, "the server fetches nothing"},
    {"chat_template", Support::kNo, kNoTemplates},
    {"documents", Support::kNo, "put them into messages"},
    {"mm_processor_kwargs", Support::kNo, "images are not supported yet"},
});

constexpr std::array kCompletionFields = std::to_array<Field>({
    {"prompt", Support::kYes,
     "a text, token ids, or a list of either; taken as it is, spellings of special tokens become "
     "those tokens",
     read_prompt},
    {"suffix", Support::kYes, "text behind the gap (fill in the middle); with text prompts",
     read_suffix},
    {"max_tokens", Support::kYes, "at least 1; default 16", read_max_tokens},
    {"echo", Support::kYes, "true: the prompt in front of the text; not with logprobs or suffix",
     read_echo},
    {"logprobs", Support::kYes, "0 to 20 likeliest tokens per token", read_completion_logprobs},
    {"best_of", Support::kNo, "use n"},
    {"add_special_tokens", Support::kFixed, "nothing is put in front of a prompt", nullptr,
     "false"},
    {"prompt_embeds", Support::kNo, "prompts are tokens"},
});

constexpr std::array kResponseFields = std::to_array<Field>({
    {"input", Support::kYes, "a text, or a list of messages of text", read_input},
    {"instructions", Support::kYes, "a system message in front", read_instructions},
    {"max_output_tokens", Support::kYes, "at least 1; default: what the context leaves",
     read_max_tokens},
    {"reasoning", Support::kYes, "{\"effort\": as reasoning_effort of chat}", read_reasoning},
    {"chat_template_kwargs", Support::kYes, "as in chat", read_template_kwargs},
    {"text", Support::kFixed, kNoStructure, nullptr, "{\"format\": {\"type\": \"text\"}} | {}"},
    {"include", Support::kFixed, "", nullptr, "[]"},
    {"background", Support::kFixed, "", nullptr, "false"},
    {"truncation", Support::kFixed, "a prompt that is too long is refused", nullptr,
     "\"disabled\""},
    {"top_logprobs", Support::kFixed, "", nullptr, "0"},
    {"tools", Support::kFixed, "use /v1/chat/completions", nullptr, "[]"},
    {"tool_choice", Support::kFixed, "use /v1/chat/completions", nullptr, "\"auto\" | \"none\""},
    {"parallel_tool_calls", Support::kFixed, "", nullptr, "true | false"},
    {"stream_options", Support::kFixed, "usage is always sent", nullptr,
     "{} | {\"include_obfuscation\": false}"},
    {"previous_response_id", Support::kNo, "nothing is stored: send the conversation"},
    {"conversation", Support::kNo, "nothing is stored: send the conversation"},
    {"prompt", Support::kNo, "nothing is stored: send the instructions"},
    {"max_tool_calls", Support::kNo, "there are no tools here"},
});

constexpr std::array kTokenizeFields = std::to_array<Field>({
    {"model", Support::kYes, "the served name", read_model},
    {"prompt", Support::kYes, "a text; or messages", read_prompt},
    {"messages", Support::kYes, "as in chat", read_messages},
    {"tools", Support::kYes, "as in chat", read_tools},
    {"reasoning_effort", Support::kYes, "as in chat", read_effort},
    {"thinking", Support::kYes, "as in chat", read_thinking},
    {"chat_template_kwargs", Support::kYes, "as in chat", read_template_kwargs},
    {"continue_final_message", Support::kYes, "as in chat", read_continue},
    {"add_generation_prompt", Support::kFixed, "", nullptr, "true"},
    {"add_special_tokens", Support::kFixed, "nothing is put in front of a prompt", nullptr,
     "false"},
    {"return_token_strs", Support::kFixed, "", nullptr, "false"},
    {"chat_template", Support::kNo, kNoTemplates},
});

constexpr std::array kDetokenizeFields = std::to_array<Field>({
    {"model", Support::kYes, "the served name", read_model},
    {"tokens", Support::kYes, "token ids", read_tokens},
});

template <typename... Tables>
std::vector<Field> join(const Tables&... tables) {
  std::vector<Field> fields;
  fields.reserve((tables.size() + ...));
  const auto add = [&fields](const auto& table) {
    for (const Field& field : table) fields.push_back(field);
  };
  (add(tables), ...);
  return fields;
}

const char* describe(Support support) {
  switch (support) {
    case Support::kYes:
      return "supported";
    case Support::kFixed:
      return "only";
    case Support::kNoEffect:
      return "no effect";
    case Support::kNo:
      return "refused";
  }
  return "?";
}

}  // namespace

std::span<const Field> fields_of(Api api) {
  static const std::vector<Field> chat = join(kChatFields, kManyFields, kGenerationFields);
  static const std::vector<Field> completions =
      join(kCompletionFields, kManyFields, kGenerationFields);
  static const std::vector<Field> responses = join(kResponseFields, kGenerationFields);
  switch (api) {
    case Api::kChat:
      return chat;
    case Api::kCompletions:
      return completions;
    case Api::kResponses:
      return responses;
    case Api::kTokenize:
      return kTokenizeFields;
    case Api::kDetokenize:
      return kDetokenizeFields;
  }
  return {};
}

std::string_view path_of(Api api) {
  switch (api) {
    case Api::kChat:
      return "/v1/chat/completions";
    case Api::kCompletions:
      return "/v1/completions";
    case Api::kResponses:
      return "/v1/responses";
    case Api::kTokenize:
      return "/tokenize";
    case Api::kDetokenize:
      return "/detokenize";
  }
  return {};
}

std::string markdown_table(Api api) {
  std::string table = "| field | | values |\n|---|---|---|\n";
  for (const Field& field : fields_of(api)) {
    std::string note(field.note);
    if (!field.fixed.empty()) {
      std::string values;
      for (const char c : field.fixed) values += c == '|' ? std::string("or") : std::string(1, c);
      note = "`" + values + "`" + (note.empty() ? "" : "; " + note);
    }
    table +=
        "| `" + std::string(field.name) + "` | " + describe(field.support) + " | " + note + " |\n";
  }
  return table;
}

}  // namespace deepinfer::server
