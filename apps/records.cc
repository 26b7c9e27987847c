#include "apps/records.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>

namespace deepinfer::apps {
namespace {

using Buffer = fmt::memory_buffer;

void append(Buffer& out, std::string_view text) {
  out.append(text);
}

/// The shortest text that reads back to the same double: floats keep their bits whether a reader
/// takes them as float or as double. JSON has no infinities; they cannot come from finite logits.
void append_number(Buffer& out, double value) {
  if (std::isfinite(value)) {
    fmt::format_to(std::back_inserter(out), "{}", value);
  } else {
    append(out, "null");
  }
}

void append_token(Buffer& out, int32_t id, float logprob) {
  fmt::format_to(std::back_inserter(out), "\"id\":{},\"logprob\":", id);
  append_number(out, logprob);
}

void append_logprobs(Buffer& out, std::span<const GeneratedToken> tokens) {
  append(out, ",\"logprobs\":[");
  for (size_t i = 0; i < tokens.size(); ++i) {
    append(out, i == 0 ? "{" : ",{");
    append_token(out, tokens[i].id, tokens[i].logprob);
    append(out, ",\"top\":[");
    for (size_t j = 0; j < tokens[i].top.size(); ++j) {
      append(out, j == 0 ? "{" : ",{");
      append_token(out, tokens[i].top[j].token, tokens[i].top[j].logprob);
      out.push_back('}');
    }
    append(out, "]}");
  }
  out.push_back(']');
}

/// What both kinds of records end with.
std::string finish(Buffer& out, int64_t prompt_tokens, size_t completion_tokens,
                   std::string_view fingerprint, std::string_view error) {
  fmt::format_to(std::back_inserter(out),
                 ",\"usage\":{{\"prompt_tokens\":{},\"completion_tokens\":{}}}"
                 ",\"system_fingerprint\":{}",
                 prompt_tokens, completion_tokens, json_string(fingerprint));
  if (!error.empty()) {
    fmt::format_to(std::back_inserter(out), ",\"error\":{}", json_string(error));
  }
  append(out, "}\n");
  return fmt::to_string(out);
}

}  // namespace

std::string json_string(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string json_ids(std::span<const int32_t> ids) {
  return fmt::format("[{}]", fmt::join(ids, ","));
}

std::string to_json_line(const GenerateRecord& record) {
  const Completion& completion = *record.completion;
  std::vector<int32_t> ids;
  ids.reserve(completion.tokens.size());
  for (const GeneratedToken& token : completion.tokens) ids.push_back(token.id);
  Buffer out;
  fmt::format_to(std::back_inserter(out),
                 "{{\"id\":{},\"text\":{},\"token_ids\":{},\"finish_reason\":\"{}\"",
                 record.id_json, json_string(completion.text), json_ids(ids),
                 to_string(completion.finish_reason));
  if (record.logprobs) append_logprobs(out, completion.tokens);
  return finish(out, record.prompt_tokens, ids.size(), record.system_fingerprint, completion.error);
}

std::string to_json_line(const ScoreRecord& record) {
  Buffer out;
  fmt::format_to(std::back_inserter(out), "{{\"id\":{},\"token_ids\":{},\"logprobs\":[",
                 record.id_json, json_ids(record.token_ids));
  if (!record.token_ids.empty()) append(out, "null");
  double sum = 0;
  for (const float logprob : record.logprobs) {
    out.push_back(',');
    append_number(out, logprob);
    sum += logprob;
  }
  fmt::format_to(std::back_inserter(out), "],\"perplexity\":");
  // Of no prediction there is none: a NaN becomes null.
  append_number(out, std::exp(-sum / static_cast<double>(record.logprobs.size())));
  return finish(out, static_cast<int64_t>(record.token_ids.size()), 0, record.system_fingerprint,
                record.error);
}

}  // namespace deepinfer::apps
