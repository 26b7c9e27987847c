#include "server/http_message.h"

#include <fmt/format.h>

#include <iterator>

namespace deepinfer::server {

std::string_view reason(int status) {
  switch (status) {
    case 100:
      return "Continue";
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 411:
      return "Length Required";
    case 413:
      return "Content Too Large";
    case 415:
      return "Unsupported Media Type";
    case 417:
      return "Expectation Failed";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "Status";
  }
}

std::string to_bytes(const HttpHead& head) {
  std::string out;
  const auto add = [&out](std::string_view name, std::string_view value) {
    fmt::format_to(std::back_inserter(out), "{}: {}\r\n", name, value);
  };
  fmt::format_to(std::back_inserter(out), "HTTP/1.{} {} {}\r\n", head.http_1_0 ? 0 : 1, head.status,
                 reason(head.status));
  if (head.status != 204) {
    add("Content-Type", head.content_type);
    if (head.content_length >= 0) {
      add("Content-Length", fmt::format_int(head.content_length).c_str());
    } else if (!head.http_1_0) {
      add("Transfer-Encoding", "chunked");
    }
  }
  for (const auto& [name, value] : head.headers) add(name, value);
  // HTTP/1.0 closes unless told otherwise, HTTP/1.1 does not.
  if (!head.keep_alive) {
    add("Connection", "close");
  } else if (head.http_1_0) {
    add("Connection", "keep-alive");
  }
  out += "\r\n";
  return out;
}

void append_chunk(std::string& out, std::string_view bytes) {
  if (bytes.empty()) return;
  fmt::format_to(std::back_inserter(out), "{:x}\r\n", bytes.size());
  out += bytes;
  out += "\r\n";
}

}  // namespace deepinfer::server
