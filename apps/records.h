#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "deepinfer/engine.h"

namespace deepinfer::apps {

/// `text` as a JSON string with its quotes; bytes that are not UTF-8 become U+FFFD.
std::string json_string(std::string_view text);

/// A list of ids: [1,2,3].
std::string json_ids(std::span<const int32_t> ids);

/// One line of generate's output, with its line end:
/// {"id", "text", "token_ids", "finish_reason", "logprobs"?, "usage", "system_fingerprint",
/// "error"?}.
struct GenerateRecord {
  std::string id_json = "null";
  const Completion* completion = nullptr;
  int64_t prompt_tokens = 0;
  bool logprobs = false;
  std::string_view system_fingerprint;
};
std::string to_json_line(const GenerateRecord& record);

/// One line of score's output: {"id", "token_ids", "logprobs", "perplexity", "usage",
/// "system_fingerprint", "error"?}; the first log-probability is null.
struct ScoreRecord {
  std::string id_json;
  std::span<const int32_t> token_ids;
  std::span<const float> logprobs;  ///< [token_ids - 1]
  std::string_view system_fingerprint;
  std::string_view error;
};
std::string to_json_line(const ScoreRecord& record);

}  // namespace deepinfer::apps
