#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "deepinfer/engine.h"
#include "server/service.h"

namespace deepinfer::server {

/// How connections are treated.
struct HttpOptions {
  std::string host = "127.0.0.1";  ///< An address, or a name that has one.
  int64_t port = 8000;             ///< 0: any free one.
  int64_t workers = 2;             ///< Threads that parse and tokenize requests.
  int64_t max_connections = 4096;  ///< More are told that the server is full.
  int64_t max_header_bytes = 32768;
  int64_t max_unsent_bytes = int64_t{1} << 20;          ///< Of a stream whose reader is too slow.
  int64_t max_pending_body_bytes = int64_t{256} << 20;  ///< Of all requests that are being read.
  std::chrono::milliseconds header_timeout{10'000};     ///< From a head's first byte to its last.
  std::chrono::milliseconds body_timeout{30'000};       ///< And a second per 100,000 bytes.
  std::chrono::milliseconds idle_timeout{75'000};       ///< Between requests of a connection.
  std::chrono::milliseconds write_timeout{30'000};      ///< Until a reader has taken what was sent.
  std::chrono::milliseconds silence{15'000};            ///< Then a stream gets a comment line.

  /// Throws kInvalidArgument naming the field, its value and the range.
  void validate() const;
};

/// Serves HTTP/1.0 and 1.1. One thread, that of run(), owns connections, answers and metrics;
/// workers turn bodies into requests of the engine; the engine's thread wakes the first one once
/// per step.
class HttpServer {
 public:
  /// Listens. The engine and the service must outlive it; it takes the engine's output listener.
  /// Errors: kInvalidArgument (host), kIo (address in use, no permission).
  HttpServer(Engine& engine, Service& service, const HttpOptions& options);
  ~HttpServer();

  /// Where it listens.
  uint16_t port() const;
  /// Serves until stop(), or until drain() and the end of what was running.
  void run();
  /// Takes no new requests and lets run() return when the last answer is sent. Any thread.
  void drain();
  /// Lets run() return at once; what runs is cancelled. Any thread.
  void stop();

  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace deepinfer::server
