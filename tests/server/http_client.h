#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

namespace deepinfer::testing {

/// An answer as a client sees it.
struct HttpAnswer {
  int status = 0;
  std::map<std::string, std::string> headers;  ///< Names in lower case.
  std::string body;                            ///< Chunks joined.
  bool complete = false;                       ///< The body ended as its head said.
};

/// A blocking HTTP connection to this machine that sends exactly what it is told to. Reads give up
/// after half a minute.
class HttpClient {
 public:
  explicit HttpClient(uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    const timeval patience{.tv_sec = 30, .tv_usec = 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  }
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;
  ~HttpClient() { close(); }

  bool connected() const { return connected_; }
  int fd() const { return fd_; }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  void shutdown_send() const { ::shutdown(fd_, SHUT_WR); }

  /// False when the other side has gone.
  bool send(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }
  bool post(std::string_view path, std::string_view body, std::string_view headers = "") const {
    return send("POST " + std::string(path) + " HTTP/1.1\r\nHost: x\r\n" + std::string(headers) +
                "Content-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) +
                "\r\n\r\n" + std::string(body));
  }
  bool get(std::string_view path, std::string_view headers = "") const {
    return send("GET " + std::string(path) + " HTTP/1.1\r\nHost: x\r\n" + std::string(headers) +
                "\r\n");
  }

  /// Reads until the buffer holds `text`. False at the end of the stream.
  bool read_until(std::string_view text) {
    while (buffer_.find(text) == std::string::npos) {
      if (!read_some()) return false;
    }
    return true;
  }
  /// The next answer. `head`: of a HEAD request, without a body.
  HttpAnswer answer(bool head = false) {
    HttpAnswer answer;
    if (!read_until("\r\n\r\n")) return answer;
    const size_t end = buffer_.find("\r\n\r\n") + 4;
    parse_head(buffer_.substr(0, end), answer);
    buffer_.erase(0, end);
    if (head || answer.status == 204 || answer.status == 100) {
      answer.complete = true;
    } else if (answer.headers.contains("content-length")) {
      const size_t size = std::stoul(answer.headers["content-length"]);
      while (buffer_.size() < size && read_some()) {
      }
      answer.complete = buffer_.size() >= size;
      answer.body = buffer_.substr(0, size);
      buffer_.erase(0, size);
    } else if (answer.headers.contains("transfer-encoding")) {
      read_chunks(answer);
    } else {
      while (read_some()) {
      }
      answer.body = std::exchange(buffer_, {});
      answer.complete = true;
    }
    return answer;
  }
  /// Whether the other side has closed; what it sent before is dropped.
  bool closed() {
    while (read_some()) {
    }
    return at_end_;
  }
  const std::string& buffer() const { return buffer_; }

 private:
  bool read_some() {
    char bytes[16384];
    const ssize_t got = ::recv(fd_, bytes, sizeof(bytes), 0);
    at_end_ = got == 0 || (got < 0 && errno == ECONNRESET);
    if (got > 0) buffer_.append(bytes, static_cast<size_t>(got));
    return got > 0;
  }

  static void parse_head(const std::string& head, HttpAnswer& answer) {
    answer.status = std::stoi(head.substr(head.find(' ') + 1));
    size_t at = head.find("\r\n") + 2;
    while (at + 2 < head.size()) {
      const size_t end = head.find("\r\n", at);
      const size_t colon = head.find(": ", at);
      std::string name = head.substr(at, colon - at);
      for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      answer.headers[name] = head.substr(colon + 2, end - colon - 2);
      at = end + 2;
    }
  }

  void read_chunks(HttpAnswer& answer) {
    while (true) {
      size_t line = 0;
      while ((line = buffer_.find("\r\n")) == std::string::npos) {
        if (!read_some()) return;
      }
      const size_t size = std::stoul(buffer_.substr(0, line), nullptr, 16);
      while (buffer_.size() < line + 4 + size) {
        if (!read_some()) return;
      }
      answer.body += buffer_.substr(line + 2, size);
      buffer_.erase(0, line + 4 + size);
      if (size == 0) {
        answer.complete = true;
        return;
      }
    }
  }

  int fd_;
  bool connected_ = false;
  bool at_end_ = false;
  std::string buffer_;
};

}  // namespace deepinfer::testing
