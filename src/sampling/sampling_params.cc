#include "deepinfer/sampling_params.h"

#include <algorithm>
#include <limits>

#include "base/error.h"

namespace deepinfer {
namespace {

template <typename T>
void check_range(std::string_view field, T value, T low, T high) {
  // Written so that NaN fails.
  if (value >= low && value <= high) return;
  fail(ErrorCode::kInvalidArgument, "{} is {}, expected {} to {}", field, value, low, high);
}

void check_count(std::string_view field, size_t count, int64_t limit) {
  if (std::cmp_less_equal(count, limit)) return;
  fail(ErrorCode::kInvalidArgument, "{} has {} entries, expected at most {}", field, count, limit);
}

void check_stop(const std::vector<std::string>& stop) {
  check_count("stop", stop.size(), SamplingParams::kMaxStops);
  for (size_t i = 0; i < stop.size(); ++i) {
    if (stop[i].empty()) {
      fail(ErrorCode::kInvalidArgument, "stop[{}] is empty, expected at least one character", i);
    }
    if (std::cmp_greater(stop[i].size(), SamplingParams::kMaxStopBytes)) {
      fail(ErrorCode::kInvalidArgument, "stop[{}] has {} bytes, expected at most {}", i,
           stop[i].size(), SamplingParams::kMaxStopBytes);
    }
    // A text ends before its stop string: that must not be inside a character.
    if ((static_cast<uint8_t>(stop[i][0]) & 0xC0U) == 0x80U) {
      fail(ErrorCode::kInvalidArgument,
           "stop[{}] starts with the byte 0x{:02X}, expected the start of a UTF-8 character", i,
           static_cast<uint8_t>(stop[i][0]));
    }
  }
}

void check_logit_bias(const std::vector<std::pair<int32_t, float>>& logit_bias) {
  check_count("logit_bias", logit_bias.size(), SamplingParams::kMaxLogitBias);
  std::vector<int32_t> ids;
  for (const auto& [id, bias] : logit_bias) {
    check_range(fmt::format("logit_bias[{}]", id), bias, -100.0F, 100.0F);
    ids.push_back(id);
  }
  std::ranges::sort(ids);
  if (const auto twice = std::ranges::adjacent_find(ids); twice != ids.end()) {
    fail(ErrorCode::kInvalidArgument, "logit_bias has token {} twice, expected once", *twice);
  }
}

}  // namespace

void SamplingParams::validate() const {
  validate(int64_t{std::numeric_limits<int32_t>::max()} + 1);
}

void SamplingParams::validate(int64_t vocab_size) const {
  check_range("max_tokens", max_tokens, int64_t{1}, std::numeric_limits<int64_t>::max());
  check_range("min_tokens", min_tokens, int64_t{0}, max_tokens);
  check_range("temperature", temperature, 0.0F, 100.0F);
  if (!(top_p > 0 && top_p <= 1)) {
    fail(ErrorCode::kInvalidArgument, "top_p is {}, expected more than 0 and at most 1", top_p);
  }
  check_range("min_p", min_p, 0.0F, 1.0F);
  check_range("top_k", top_k, -1, std::numeric_limits<int32_t>::max());
  check_range("repetition_penalty", repetition_penalty, 0.01F, 100.0F);
  check_range("frequency_penalty", frequency_penalty, -2.0F, 2.0F);
  check_range("presence_penalty", presence_penalty, -2.0F, 2.0F);
  if (logprobs) check_range("logprobs", *logprobs, 0, kMaxLogprobs);
  check_stop(stop);
  check_count("stop_token_ids", stop_token_ids.size(), kMaxStopTokenIds);
  for (size_t i = 0; i < stop_token_ids.size(); ++i) {
    check_range(fmt::format("stop_token_ids[{}]", i), int64_t{stop_token_ids[i]}, int64_t{0},
                vocab_size - 1);
  }
  check_logit_bias(logit_bias);
  for (const auto& [id, bias] : logit_bias) {
    check_range("logit_bias (a token id)", int64_t{id}, int64_t{0}, vocab_size - 1);
  }
}

}  // namespace deepinfer
