#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "deepinfer/error.h"

namespace deepinfer::server {

/// A request that is answered with an error. what() is one sentence for the client.
class ApiError : public std::runtime_error {
 public:
  /// `param`: the request's field at fault, as "messages[2].content"; empty: none. `code`: a name
  /// for programs; empty: none.
  ApiError(int status, const std::string& message, std::string param = {}, std::string code = {})
      : std::runtime_error(message),
        status_(status),
        param_(std::move(param)),
        code_(std::move(code)) {}

  int status() const noexcept { return status_; }
  const std::string& param() const noexcept { return param_; }
  const std::string& code() const noexcept { return code_; }

 private:
  int status_;
  std::string param_;
  std::string code_;
};

/// The HTTP status of an error of the library (deepinfer/error.h).
int http_status(ErrorCode code) noexcept;

/// An error of the library as an answer. Messages of the library begin with what they are about:
/// where that is a field ("top_p is 3, …", "messages[0].role is …") it becomes the param, else
/// `default_param` does.
ApiError to_api_error(const Error& error, const std::string& default_param = {});

/// {"error": {"message", "type", "param", "code"}} as OpenAI's API has it.
std::string error_json(const ApiError& error);

}  // namespace deepinfer::server
