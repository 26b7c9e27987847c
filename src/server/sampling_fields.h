#pragma once

#include "server/fields.h"

namespace deepinfer::server {

// Readers of the fields that chat, completions and responses share.

void read_model(ApiRequest& request, const FieldValue& value);
void read_stream(ApiRequest& request, const FieldValue& value);
void read_stream_options(ApiRequest& request, const FieldValue& value);
void read_n(ApiRequest& request, const FieldValue& value);
void read_max_tokens(ApiRequest& request, const FieldValue& value);
void read_min_tokens(ApiRequest& request, const FieldValue& value);
void read_seed(ApiRequest& request, const FieldValue& value);
void read_stop(ApiRequest& request, const FieldValue& value);
void read_stop_token_ids(ApiRequest& request, const FieldValue& value);
void read_ignore_eos(ApiRequest& request, const FieldValue& value);
void read_logit_bias(ApiRequest& request, const FieldValue& value);
void read_top_k(ApiRequest& request, const FieldValue& value);
void read_cache_salt(ApiRequest& request, const FieldValue& value);
void read_priority(ApiRequest& request, const FieldValue& value);

/// A field that is a number of SamplingParams.
template <float SamplingParams::* kMember>
void read_number(ApiRequest& request, const FieldValue& value) {
  request.sampling.*kMember = value.number();
}

}  // namespace deepinfer::server
