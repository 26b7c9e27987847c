#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace deepinfer::server {

/// A request as the routes see it.
struct HttpRequest {
  std::string method = {};
  std::string path = {};  ///< Of the target, as sent: without the query, not decoded.
  std::string authorization = {};
  int num_authorizations = 0;  ///< How many such headers there were.
  std::string body = {};
};

/// The head of an answer.
struct HttpHead {
  int status = 200;
  std::string_view content_type = "application/json";
  std::vector<std::pair<std::string_view, std::string>> headers = {};
  int64_t content_length = -1;  ///< -1: chunked, or to the end of the connection for HTTP/1.0.
  bool keep_alive = true;
  bool http_1_0 = false;
};

/// The bytes in front of the body.
std::string to_bytes(const HttpHead& head);
/// Appends a body's piece in chunked coding; an empty one is no chunk.
void append_chunk(std::string& out, std::string_view bytes);
/// The end of a chunked body.
inline constexpr std::string_view kLastChunk = "0\r\n\r\n";

/// The reason phrase of a status.
std::string_view reason(int status);

}  // namespace deepinfer::server
