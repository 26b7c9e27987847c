#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "deepinfer/engine.h"
#include "text/json_value.h"

namespace deepinfer::server {

/// The routes that take a JSON body.
enum class Api : uint8_t { kChat, kCompletions, kResponses, kTokenize, kDetokenize };

/// What a request may ask for at most; checked before anything is allocated for it.
struct RequestLimits {
  int64_t max_body_bytes = int64_t{32} << 20;
  int64_t max_json_values = 2'000'000;  ///< Values in a body: a million token ids fit.
  int max_json_depth = 64;
  int64_t max_choices = 128;  ///< Prompts times n.
  int64_t max_tools = 1024;

  /// Throws kInvalidArgument naming the field, its value and the range.
  void validate() const;
};

/// A prompt of /v1/completions or /tokenize.
struct PromptInput {
  std::string text = {};
  std::vector<int32_t> ids = {};
  bool is_ids = false;
};

/// A request's body, checked as far as this is possible without the model.
struct ApiRequest {
  Api api = Api::kChat;
  std::string model = {};  ///< Empty: whichever is served.
  SamplingParams sampling = {};
  std::optional<int64_t> max_tokens = {};       ///< Nothing: the route's default.
  std::string max_tokens_field = "max_tokens";  ///< How the request called it.
  int64_t n = 1;
  bool stream = false;
  bool include_usage = false;
  bool has_stream_options = false;
  bool wants_logprobs = false;  ///< Chat: `logprobs`.
  std::optional<int32_t> top_logprobs = {};
  std::optional<std::string> cache_salt = {};
  int32_t priority = 0;  ///< Request::priority.

  std::vector<PromptInput> prompts = {};  ///< Completions, /tokenize.
  std::optional<std::string> suffix = {};
  bool echo = false;

  text::JsonValue messages = {};  ///< A list in the encoder's terms; null: none.
  text::JsonValue tools = {};     ///< A list, or null.
  bool tools_offered = true;      ///< False for tool_choice "none".
  std::optional<bool> thinking = {};
  std::string effort = {};
  bool continue_final_message = false;
  std::string instructions = {};  ///< Of /v1/responses.

  std::optional<std::vector<int32_t>> tokens = {};  ///< Of /detokenize.
};

/// Reads and checks a body. Errors: ApiError naming the field.
ApiRequest parse_request(Api api, std::string_view body, const RequestLimits& limits);

}  // namespace deepinfer::server
