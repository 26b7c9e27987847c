#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/added_tokens.h"
#include "text/merge_table.h"

namespace deepinfer::text {

struct Token {
  std::string bytes;  ///< What it decodes to.
  std::string piece;  ///< Its entry in tokenizer.json; added tokens: the same as `bytes`.
  bool added = false;
  bool special = false;
};

/// A checked tokenizer.json.
struct TokenizerData {
  std::vector<Token> tokens;  ///< By id.
  MergeTable merges;
  AddedTokens added;
};

/// Reads a tokenizer.json (spec/checkpoint.md §3.1). Errors, each naming `source` and the entry:
/// kInvalidFile (malformed JSON, ids that are out of range, missing or used twice, merges of
/// unknown pieces, missing bytes) and kUnsupported (another kind of model, normaliser,
/// pre-tokeniser, decoder or added token than DeepSeek's).
TokenizerData parse_tokenizer_json(std::string_view json, std::string_view source);

}  // namespace deepinfer::text
