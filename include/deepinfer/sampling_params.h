#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace deepinfer {

/// How to draw the tokens of a request and when to end it. The defaults draw from the model's own
/// distribution. Order of work on the logits: penalties, logit_bias, then temperature, top-k,
/// top-p, min-p and noise (or, at temperature 0, the largest logit; the lowest id on ties).
struct SamplingParams {
  static constexpr int32_t kMaxLogprobs = 20;
  static constexpr int64_t kMaxStops = 64;           ///< Stop strings of a request.
  static constexpr int64_t kMaxStopBytes = 4096;     ///< Bytes of one stop string.
  static constexpr int64_t kMaxStopTokenIds = 1024;  ///< Stop tokens of a request.
  static constexpr int64_t kMaxLogitBias = 16384;    ///< Entries of logit_bias.

  int64_t max_tokens = 16;  ///< Most tokens to generate, >= 1.
  int64_t min_tokens = 0;   ///< No end token or stop token before so many; in [0, max_tokens].
  float temperature = 1;    ///< In [0, 100]; 0: always the most likely token.
  float top_p = 1;          ///< In (0, 1]; likeliest tokens of this total probability; 1: off.
  float min_p = 0;          ///< In [0, 1]; least share of the best token's probability; 0: off.
  int32_t top_k = 0;        ///< The k likeliest tokens; 0 (or -1): off.
  float repetition_penalty = 1;   ///< In [0.01, 100]; divides positive and multiplies negative
                                  ///< logits of the tokens in prompt or output; 1: off.
  float frequency_penalty = 0;    ///< In [-2, 2]; off the logit per occurrence in the output.
  float presence_penalty = 0;     ///< In [-2, 2]; off the logit of every token in the output.
  std::optional<uint64_t> seed;   ///< The same seed, the same tokens; nothing: one is drawn.
  std::vector<std::string> stop;  ///< The text ends before the first of these. Not empty.
  std::vector<int32_t> stop_token_ids;  ///< The output ends with any of these tokens.
  bool ignore_eos = false;              ///< The end token is like any other: the output goes on.
  std::optional<int32_t> logprobs;  ///< Report log-probabilities, and those of so many most likely
                                    ///< tokens, in [0, 20]; nothing: none.
  std::vector<std::pair<int32_t, float>>
      logit_bias;  ///< Token id, what is added to its logit, in [-100, 100]. An id at most once.

  /// Throws kInvalidArgument naming the field, its value and the range.
  void validate() const;
  /// The same, and token ids must be in [0, vocab_size).
  void validate(int64_t vocab_size) const;
};

}  // namespace deepinfer
