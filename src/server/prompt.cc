#include "server/prompt.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "server/api_error.h"
#include "text/chat_render.h"

namespace deepinfer::server {
namespace {

const Tokenizer& tokenizer_of(const PromptContext& context, const std::string& param) {
  if (context.tokenizer == nullptr) {
    throw ApiError(400, "the served model has no tokenizer.json: send token ids to /v1/completions",
                   param);
  }
  return *context.tokenizer;
}

int32_t added_token(const Tokenizer& tokenizer, std::string_view spelling, const char* param) {
  const std::optional<int32_t> id = tokenizer.added_token(spelling);
  if (!id) {
    throw ApiError(
        400,
        fmt::format("{} needs the token {}, which the model's vocabulary lacks", param, spelling),
        param);
  }
  return *id;
}

/// Prefix and suffix around a gap that the model fills (spec/checkpoint.md §3.2).
std::vector<int32_t> encode_gap(const Tokenizer& tokenizer, const std::string& prefix,
                                const std::string& suffix) {
  std::vector<int32_t> ids = {added_token(tokenizer, "<｜fim▁begin｜>", "suffix")};
  tokenizer.encode(prefix, SpecialTokens::kPlain, ids);
  ids.push_back(added_token(tokenizer, "<｜fim▁hole｜>", "suffix"));
  tokenizer.encode(suffix, SpecialTokens::kPlain, ids);
  ids.push_back(added_token(tokenizer, "<｜fim▁end｜>", "suffix"));
  return ids;
}

void check_ids(const std::vector<int32_t>& ids, const std::string& name, int64_t vocab_size) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= vocab_size) {
      throw ApiError(400,
                     fmt::format("{}[{}] is {}, expected a token id from 0 to {}", name, i, ids[i],
                                 vocab_size - 1),
                     "prompt");
    }
  }
}

EncodedPrompt encode_one(const ApiRequest& request, const PromptInput& input,
                         const std::string& name, const PromptContext& context) {
  EncodedPrompt prompt;
  if (input.is_ids) {
    if (request.suffix) {
      throw ApiError(400, "suffix needs text prompts, not token ids", "suffix");
    }
    check_ids(input.ids, name, context.vocab_size);
    prompt.ids = input.ids;
  } else {
    const Tokenizer& tokenizer = tokenizer_of(context, "prompt");
    prompt.ids = request.suffix ? encode_gap(tokenizer, input.text, *request.suffix)
                                : tokenizer.encode(input.text, SpecialTokens::kParse);
  }
  if (prompt.ids.empty()) {
    throw ApiError(400, fmt::format("{} is empty, expected at least one token", name), "prompt");
  }
  return prompt;
}

/// The conversation with its instructions in front.
text::JsonValue with_instructions(const ApiRequest& request) {
  text::JsonValue messages;
  messages.kind = text::JsonValue::Kind::kArray;
  text::JsonValue system = text::JsonValue::object();
  system.set("role", text::JsonValue::string("system"));
  system.set("content", text::JsonValue::string(request.instructions));
  messages.values.push_back(std::move(system));
  messages.values.insert(messages.values.end(), request.messages.values.begin(),
                         request.messages.values.end());
  return messages;
}

EncodedPrompt encode_conversation(const ApiRequest& request, const PromptContext& context) {
  const char* const param = request.api == Api::kResponses ? "input" : "messages";
  const Tokenizer& tokenizer = tokenizer_of(context, param);
  ChatOptions options;
  // An effort is a wish for reasoning, if nothing else is said.
  options.thinking = request.thinking.value_or(context.thinking || !request.effort.empty());
  options.effort = request.effort.empty() ? context.effort : request.effort;
  options.continue_final_message = request.continue_final_message;
  options.tools = offered_tools(request);
  try {
    const ChatPrompt prompt = request.instructions.empty()
                                  ? text::render_messages(request.messages, options)
                                  : text::render_messages(with_instructions(request), options);
    return {.ids = encode_chat(tokenizer, prompt),
            .in_reasoning = prompt.in_reasoning,
            .continues = prompt.continues};
  } catch (const Error& error) {
    const std::string_view what = error.what();
    if (what.starts_with("the reasoning effort")) {
      throw ApiError(400, error.what(), "reasoning_effort");
    }
    throw to_api_error(error, param);
  }
}

}  // namespace

bool knows_reasoning(const Tokenizer* tokenizer) {
  if (tokenizer == nullptr) return false;
  for (const std::string_view mark : {"<｜System｜>", "<think>", "</think>"}) {
    if (!tokenizer->added_token(mark)) return false;
  }
  return true;
}

std::string offered_tools(const ApiRequest& request) {
  const bool none = request.tools.values.empty() || !request.tools_offered;
  return none ? std::string() : to_python_json(request.tools);
}

std::vector<EncodedPrompt> encode_prompts(const ApiRequest& request, const PromptContext& context) {
  std::vector<EncodedPrompt> prompts;
  if (!request.messages.values.empty()) {
    prompts.push_back(encode_conversation(request, context));
    return prompts;
  }
  for (size_t i = 0; i < request.prompts.size(); ++i) {
    const std::string name = request.prompts.size() > 1 ? fmt::format("prompt[{}]", i) : "prompt";
    prompts.push_back(encode_one(request, request.prompts[i], name, context));
  }
  return prompts;
}

}  // namespace deepinfer::server
