#include "server/sampling_fields.h"

#include <charconv>
#include <limits>
#include <string>
#include <utility>

#include "server/api_error.h"

namespace deepinfer::server {
namespace {

constexpr int64_t kMaxInt64 = std::numeric_limits<int64_t>::max();
constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();

}  // namespace

void read_model(ApiRequest& request, const FieldValue& value) {
  request.model = value.string();
}

void read_stream(ApiRequest& request, const FieldValue& value) {
  request.stream = value.boolean();
}

void read_stream_options(ApiRequest& request, const FieldValue& value) {
  request.has_stream_options = true;
  for (size_t i = 0; i < value.object().keys.size(); ++i) {
    const FieldValue option = value.member(i);
    if (option.json().is(text::JsonValue::Kind::kNull)) continue;
    if (value.json().keys[i] == "include_usage") {
      request.include_usage = option.boolean();
    } else {
      option.fail("nothing: only stream_options.include_usage is supported");
    }
  }
}

void read_n(ApiRequest& request, const FieldValue& value) {
  request.n = value.integer(1, kMaxInt32);
}

void read_max_tokens(ApiRequest& request, const FieldValue& value) {
  const int64_t tokens = value.integer(1, kMaxInt64);
  if (request.max_tokens && *request.max_tokens != tokens) {
    value.fail(request.max_tokens_field + "'s value, since both are given");
  }
  request.max_tokens = tokens;
  request.max_tokens_field = value.name();
}

void read_min_tokens(ApiRequest& request, const FieldValue& value) {
  request.sampling.min_tokens = value.integer(0, kMaxInt64);
}

void read_seed(ApiRequest& request, const FieldValue& value) {
  request.sampling.seed = value.seed();
}

void read_stop(ApiRequest& request, const FieldValue& value) {
  using Kind = text::JsonValue::Kind;
  if (value.json().is(Kind::kString)) {
    request.sampling.stop = {value.string()};
  } else if (value.json().is(Kind::kArray)) {
    // A list of any length would be copied before it is refused.
    if (std::cmp_greater(value.json().values.size(), SamplingParams::kMaxStops)) {
      value.fail("at most " + std::to_string(SamplingParams::kMaxStops) + " strings");
    }
    request.sampling.stop = value.strings();
  } else {
    value.fail("a string or a list of strings");
  }
}

void read_stop_token_ids(ApiRequest& request, const FieldValue& value) {
  request.sampling.stop_token_ids = value.ids();
}

void read_ignore_eos(ApiRequest& request, const FieldValue& value) {
  request.sampling.ignore_eos = value.boolean();
}

void read_logit_bias(ApiRequest& request, const FieldValue& value) {
  const text::JsonValue& object = value.object();
  if (std::cmp_greater(object.keys.size(), SamplingParams::kMaxLogitBias)) {
    value.fail("at most " + std::to_string(SamplingParams::kMaxLogitBias) + " entries");
  }
  for (size_t i = 0; i < object.keys.size(); ++i) {
    const std::string& key = object.keys[i];
    int32_t id = 0;
    const auto [at, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || at != key.data() + key.size() || id < 0) {
      throw ApiError(400,
                     "logit_bias has the key " + text::quote_json(key.substr(0, 60)) +
                         ", expected token ids such as \"42\"",
                     value.name());
    }
    request.sampling.logit_bias.emplace_back(id, value.member(i).number());
  }
}

void read_top_k(ApiRequest& request, const FieldValue& value) {
  request.sampling.top_k = static_cast<int32_t>(value.integer(-1, kMaxInt32));
}

void read_cache_salt(ApiRequest& request, const FieldValue& value) {
  const std::string& salt = request.cache_salt.emplace(value.string());
  if (salt.empty() || salt.size() > Request::kMaxCacheSaltBytes) {
    value.fail("1 to " + std::to_string(Request::kMaxCacheSaltBytes) + " bytes");
  }
}

void read_priority(ApiRequest& request, const FieldValue& value) {
  request.priority =
      static_cast<int32_t>(value.integer(-Request::kMaxPriority, Request::kMaxPriority));
}

}  // namespace deepinfer::server
