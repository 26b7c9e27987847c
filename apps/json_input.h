#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/line_reader.h"
#include "deepinfer/sampling_params.h"

namespace deepinfer::apps {

/// One line of `generate --input` or `score --input`. A line that cannot be used carries its error
/// instead, so that it becomes an error record.
struct Entry {
  std::string id_json;  ///< The id as JSON: the given string or integer, or the line's number.
  std::string id_text;  ///< The same as plain text.
  std::optional<std::string> text;             ///< "prompt" or "text".
  std::optional<std::vector<int32_t>> tokens;  ///< "tokens".
  std::optional<std::string> messages_json;    ///< "messages", as JSON.
  SamplingParams sampling;
  int32_t priority = 0;                   ///< As in Request.
  std::optional<std::string> cache_salt;  ///< As in Request.
  std::string error;                      ///< Empty: none. Names the file, the line and the field.
};

/// Reads a line of generate: {"id", "prompt" or "tokens" or "messages", "priority", "cache_salt",
/// sampling fields by their API names}; fields that the line lacks come from `defaults`. Every
/// other field is an error.
Entry parse_generate_line(const Line& line, std::string_view source,
                          const SamplingParams& defaults);

/// Reads a line of score: {"id", "text" or "prompt" or "tokens"}.
Entry parse_score_line(const Line& line, std::string_view source);

/// Reads a JSON list of token ids. `source` names it in errors. Errors: kInvalidFile.
std::vector<int32_t> parse_id_list(std::string_view json, std::string_view source);

}  // namespace deepinfer::apps
