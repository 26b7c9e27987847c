#include "server/api_error.h"

#include <fmt/format.h>

#include <algorithm>

#include "deepinfer/tokenizer.h"
#include "text/json_value.h"

namespace deepinfer::server {
namespace {

const char* error_type(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 404:
      return "not_found_error";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    default:
      return status >= 500 ? "server_error" : "invalid_request_error";
  }
}

std::string quote_or_null(const std::string& text) {
  return text.empty() ? "null" : text::quote_json(replace_invalid_utf8(text));
}

/// The field that a message is about: "top_p", "stop[3]", "messages[1].tool_calls[0].id".
std::string leading_field(std::string_view message) {
  constexpr std::string_view kFieldCharacters = "abcdefghijklmnopqrstuvwxyz0123456789_[].";
  const std::string_view field =
      message.substr(0, std::min(message.find_first_not_of(kFieldCharacters), message.size()));
  const bool ends_like_one = field.size() < message.size() &&
                             (message[field.size()] == ' ' || message[field.size()] == ':');
  // An English word that opens a sentence has neither an underscore nor an index.
  for (const std::string_view word : {"the", "token", "there", "a", "an", "this"}) {
    if (field == word) return {};
  }
  return ends_like_one ? std::string(field) : std::string();
}

}  // namespace

int http_status(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kInvalidFile:
    case ErrorCode::kUnsupported:
      return 400;
    case ErrorCode::kNotFound:
      return 404;
    case ErrorCode::kResourceExhausted:
      return 503;
    case ErrorCode::kIo:
    case ErrorCode::kInternal:
      return 500;
  }
  return 500;
}

ApiError to_api_error(const Error& error, const std::string& default_param) {
  const int status = http_status(error.code());
  std::string param = status == 400 ? leading_field(error.what()) : std::string();
  if (param.empty()) param = default_param;
  return ApiError(status, error.what(), std::move(param));
}

std::string error_json(const ApiError& error) {
  return fmt::format(R"({{"error":{{"message":{},"type":"{}","param":{},"code":{}}}}})",
                     text::quote_json(replace_invalid_utf8(error.what())),
                     error_type(error.status()), quote_or_null(error.param()),
                     quote_or_null(error.code()));
}

}  // namespace deepinfer::server
