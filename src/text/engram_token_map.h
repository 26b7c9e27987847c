#pragma once

#include <cstdint>
#include <vector>

#include "deepinfer/tokenizer.h"

namespace deepinfer::text {

/// The compressed id of every token for Engram's hashes (spec/checkpoint.md §5.2): tokens whose
/// text differs only in case, accents, width or white space share one. [vocab_size]; values are
/// consecutive from 0, in order of first use.
std::vector<int32_t> derive_engram_token_map(const Tokenizer& tokenizer);

}  // namespace deepinfer::text
