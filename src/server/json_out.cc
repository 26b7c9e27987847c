#include "server/json_out.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>

#include "text/json_value.h"

namespace deepinfer::server {
namespace {

std::string_view bytes_of(const Tokenizer* tokenizer, int32_t id) {
  return tokenizer == nullptr ? std::string_view() : tokenizer->token_bytes(id);
}

void append_token(std::string& out, const Tokenizer& tokenizer, int32_t id, float logprob) {
  const std::string_view bytes = tokenizer.token_bytes(id);
  out += R"({"token":)";
  append_string(out, bytes);
  out += R"(,"logprob":)";
  append_logprob(out, logprob);
  out += R"(,"bytes":[)";
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (i > 0) out += ',';
    append_integer(out, static_cast<uint8_t>(bytes[i]));
  }
  out += ']';
}

/// The name of a token where names are keys and must differ: its text, or for a part of a
/// character its bytes.
std::string token_name(const Tokenizer* tokenizer, int32_t id) {
  if (tokenizer == nullptr) return fmt::format("token_id:{}", id);
  const std::string_view bytes = tokenizer->token_bytes(id);
  if (replace_invalid_utf8(bytes) == bytes) return std::string(bytes);
  std::string name = "bytes:";
  for (const char c : bytes) name += fmt::format("\\x{:02x}", static_cast<uint8_t>(c));
  return name;
}

int64_t count_characters(std::string_view text) {
  int64_t count = 0;
  for (const char c : text) count += (static_cast<uint8_t>(c) & 0xC0U) != 0x80U ? 1 : 0;
  return count;
}

}  // namespace

void append_string(std::string& out, std::string_view text) {
  out += text::quote_json(replace_invalid_utf8(text));
}

void append_integer(std::string& out, int64_t value) {
  out += fmt::format_int(value).c_str();
}

void append_logprob(std::string& out, float logprob) {
  constexpr double kNone = -9999;
  const double value = std::isfinite(logprob) ? double{logprob} : kNone;
  fmt::format_to(std::back_inserter(out), "{}", value);
}

void append_usage(std::string& out, const Usage& usage) {
  fmt::format_to(std::back_inserter(out),
                 R"({{"prompt_tokens":{},"completion_tokens":{},"total_tokens":{},)"
                 R"("prompt_tokens_details":{{"cached_tokens":{}}},)"
                 R"("completion_tokens_details":{{"reasoning_tokens":{}}}}})",
                 usage.prompt_tokens, usage.completion_tokens,
                 usage.prompt_tokens + usage.completion_tokens, usage.cached_tokens,
                 usage.reasoning_tokens);
}

void append_chat_logprobs(std::string& out, const Tokenizer& tokenizer,
                          std::span<const GeneratedToken> tokens) {
  out += R"({"content":[)";
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0) out += ',';
    append_token(out, tokenizer, tokens[i].id, tokens[i].logprob);
    out += R"(,"top_logprobs":[)";
    for (size_t j = 0; j < tokens[i].top.size(); ++j) {
      if (j > 0) out += ',';
      append_token(out, tokenizer, tokens[i].top[j].token, tokens[i].top[j].logprob);
      out += '}';
    }
    out += "]}";
  }
  out += R"(],"refusal":null})";
}

void append_completion_logprobs(std::string& out, const Tokenizer* tokenizer,
                                std::span<const GeneratedToken> tokens, int64_t& offset) {
  std::string offsets;
  std::string logprobs;
  std::string names;
  std::string tops;
  const char* between = "";
  for (const GeneratedToken& token : tokens) {
    for (std::string* list : {&offsets, &logprobs, &names, &tops}) *list += between;
    append_integer(offsets, offset);
    offset += count_characters(bytes_of(tokenizer, token.id));
    append_logprob(logprobs, token.logprob);
    append_string(names, token_name(tokenizer, token.id));
    tops += '{';
    for (size_t j = 0; j < token.top.size(); ++j) {
      if (j > 0) tops += ',';
      append_string(tops, token_name(tokenizer, token.top[j].token));
      tops += ':';
      append_logprob(tops, token.top[j].logprob);
    }
    tops += '}';
    between = ",";
  }
  fmt::format_to(
      std::back_inserter(out),
      R"({{"text_offset":[{}],"token_logprobs":[{}],"tokens":[{}],"top_logprobs":[{}]}})", offsets,
      logprobs, names, tops);
}

void append_tool_calls(std::string& out, std::span<const ChatToolCall> calls, int64_t first) {
  out += '[';
  for (size_t i = 0; i < calls.size(); ++i) {
    if (i > 0) out += ',';
    out += '{';
    if (first >= 0) {
      out += R"("index":)";
      append_integer(out, first + static_cast<int64_t>(i));
      out += ',';
    }
    out += R"("id":")" + make_id("call_") + R"(","type":"function","function":{"name":)";
    append_string(out, calls[i].name_space.empty() ? calls[i].name
                                                   : calls[i].name_space + "::" + calls[i].name);
    out += R"(,"arguments":)";
    append_string(out, calls[i].arguments);
    out += "}}";
  }
  out += ']';
}

}  // namespace deepinfer::server
