#include "deepinfer/sampling_params.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "deepinfer/error.h"

namespace deepinfer {
namespace {

constexpr int64_t kVocab = 100;

std::string refusal(const SamplingParams& params) {
  try {
    params.validate(kVocab);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "";
}

struct Refused {
  const char* message;  // what it starts with
  void (*set)(SamplingParams&);
};

TEST(SamplingParams, RefusalsNameFieldValueAndRange) {
  const Refused cases[] = {
      {"max_tokens is 0, expected 1 to", [](auto& p) { p.max_tokens = 0; }},
      {"min_tokens is -1, expected 0 to", [](auto& p) { p.min_tokens = -1; }},
      {"min_tokens is 5, expected 0 to 4", [](auto& p) { p.max_tokens = 4, p.min_tokens = 5; }},
      {"temperature is -0.5, expected 0 to 100", [](auto& p) { p.temperature = -0.5F; }},
      {"temperature is nan", [](auto& p) { p.temperature = NAN; }},
      {"temperature is inf", [](auto& p) { p.temperature = INFINITY; }},
      {"top_p is 0, expected more than 0", [](auto& p) { p.top_p = 0; }},
      {"top_p is 1.5", [](auto& p) { p.top_p = 1.5F; }},
      {"top_p is nan", [](auto& p) { p.top_p = NAN; }},
      {"min_p is 1.25, expected 0 to 1", [](auto& p) { p.min_p = 1.25F; }},
      {"min_p is nan", [](auto& p) { p.min_p = NAN; }},
      {"top_k is -2, expected -1 to", [](auto& p) { p.top_k = -2; }},
      {"repetition_penalty is 0, expected 0.01 to", [](auto& p) { p.repetition_penalty = 0; }},
      {"repetition_penalty is nan", [](auto& p) { p.repetition_penalty = NAN; }},
      {"frequency_penalty is 2.5, expected -2 to 2", [](auto& p) { p.frequency_penalty = 2.5F; }},
      {"frequency_penalty is nan", [](auto& p) { p.frequency_penalty = NAN; }},
      {"presence_penalty is -3, expected -2 to 2", [](auto& p) { p.presence_penalty = -3; }},
      {"presence_penalty is nan", [](auto& p) { p.presence_penalty = NAN; }},
      {"logprobs is 21, expected 0 to 20", [](auto& p) { p.logprobs = 21; }},
      {"logprobs is -1", [](auto& p) { p.logprobs = -1; }},
      {"stop[1] is empty", [](auto& p) { p.stop = {"a", ""}; }},
      {"stop[0] has 4097 bytes", [](auto& p) { p.stop = {std::string(4097, 'a')}; }},
      {"stop[0] starts with the byte 0xA9", [](auto& p) { p.stop = {"\xA9"}; }},
      {"stop has 65 entries, expected at most 64", [](auto& p) { p.stop.assign(65, "a"); }},
      {"stop_token_ids[1] is 100, expected 0 to 99", [](auto& p) { p.stop_token_ids = {0, 100}; }},
      {"stop_token_ids[0] is -7", [](auto& p) { p.stop_token_ids = {-7}; }},
      {"stop_token_ids has 1025 entries", [](auto& p) { p.stop_token_ids.assign(1025, 1); }},
      {"logit_bias (a token id) is 100, expected 0 to 99",
       [](auto& p) { p.logit_bias = {{100, 5}}; }},
      {"logit_bias (a token id) is -1", [](auto& p) { p.logit_bias = {{-1, 1}}; }},
      {"logit_bias[3] is nan, expected -100 to 100", [](auto& p) { p.logit_bias = {{3, NAN}}; }},
      {"logit_bias[3] is 101", [](auto& p) { p.logit_bias = {{3, 101}}; }},
      {"logit_bias has token 4 twice", [](auto& p) { p.logit_bias = {{4, 1}, {5, 1}, {4, 2}}; }},
      {"logit_bias has 16385 entries", [](auto& p) { p.logit_bias.assign(16385, {1, 1}); }},
  };
  for (const Refused& refused : cases) {
    SamplingParams params;
    refused.set(params);
    const std::string message = refusal(params);
    EXPECT_TRUE(message.starts_with(refused.message))
        << "expected \"" << refused.message << "…\", got \"" << message << '"';
  }
}

TEST(SamplingParams, AcceptsDefaultsAndEdges) {
  SamplingParams params;
  EXPECT_EQ(refusal(params), "");
  params.max_tokens = std::numeric_limits<int64_t>::max();
  params.min_tokens = params.max_tokens;
  params.temperature = 0;
  params.top_p = std::numeric_limits<float>::min();
  params.min_p = 1;
  params.top_k = -1;
  params.repetition_penalty = 100;
  params.frequency_penalty = -2;
  params.presence_penalty = 2;
  params.logprobs = 20;
  params.stop.assign(64, "é");
  params.stop_token_ids = {0, 99};
  params.logit_bias = {{99, -100}, {0, 100}};
  EXPECT_EQ(refusal(params), "");
}

TEST(SamplingParams, ValidatesIdsOfAnUnknownVocabulary) {
  SamplingParams params;
  params.stop_token_ids = {std::numeric_limits<int32_t>::max()};
  EXPECT_NO_THROW(params.validate());
  params.stop_token_ids = {-1};
  EXPECT_THROW(params.validate(), Error);
}

}  // namespace
}  // namespace deepinfer
