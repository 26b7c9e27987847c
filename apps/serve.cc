#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "apps/cli.h"
#include "apps/commands.h"
#include "apps/engine_setup.h"
#include "apps/interruption.h"
#include "apps/output.h"
#include "base/error.h"
#include "base/log.h"
#include "server/http_server.h"
#include "server/service.h"

namespace deepinfer::apps {
namespace {

struct ServeFlags {
  EngineOptions engine;
  server::ServiceOptions service;
  server::HttpOptions http;
  std::optional<std::string> api_key_file;
  int64_t drain_timeout_s = 600;
};

void add_serve_flags(Flags& parser, ServeFlags& flags) {
  server::ServiceOptions& service = flags.service;
  server::HttpOptions& http = flags.http;
  parser.text("--host", "ADDRESS", &http.host, "Where to listen (default 127.0.0.1)");
  parser.integer("--port", &http.port, 0, "Port; 0: any free one (default 8000)", 65535);
  parser.text("--served-model-name", "NAME", &service.model_name,
              "What requests call the model (default: the folder's name)");
  parser.text("--api-key-file", "FILE", &flags.api_key_file,
              "Keys, one per line; without one of them only /health, /ready and /ping answer");
  parser.toggle("--open-page", &service.open_page, "The chat page itself needs no key");
  parser.text("--cors-origin", "ORIGIN", &service.cors_origin,
              "Let pages of this origin, or of all (*), call the API (default: none)");
  parser.text("--thinking", "on|off|auto", &service.thinking,
              "Reasoning of requests that do not say; auto: if the vocabulary has the marks "
              "(default auto)");
  parser.text("--effort", "LEVEL", &service.effort,
              "Reasoning effort of requests that do not say (default high)");
  parser.text("--metrics-prefix", "TEXT", &service.metrics_prefix,
              "What names of metrics begin with (default deepinfer_; vllm: fits its dashboards)");
  parser.integer("--workers", &http.workers, 1,
                 "Threads that parse and tokenize requests (default 2)");
  parser.integer("--max-requests", &service.max_requests, 1,
                 "Most choices that wait or run at once (default 4096)");
  parser.integer("--max-connections", &http.max_connections, 1,
                 "Most open connections (default 4096)");
  parser.integer("--max-body-bytes", &service.limits.max_body_bytes, 1024,
                 "Longest request (default 33554432)");
  parser.integer("--max-choices", &service.limits.max_choices, 1,
                 "Most choices of a request, prompts times n (default 128)");
  parser.integer("--drain-timeout", &flags.drain_timeout_s, 0,
                 "Seconds that requests get to end after the first SIGTERM (default 600)");
}

/// Waits until the server's thread is done or a signal asks to end. True for a signal.
bool wait_for_signal(const Interruption& interruption, int finished_fd) {
  std::array<pollfd, 2> fds = {pollfd{interruption.fd(), POLLIN, 0},
                               pollfd{finished_fd, POLLIN, 0}};
  while (::poll(fds.data(), fds.size(), -1) < 0 && errno == EINTR) {
  }
  return (fds[0].revents & POLLIN) != 0;
}

/// Whether a descriptor becomes readable in time.
bool readable_within(int fd, std::chrono::seconds timeout) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point end = Clock::now() + timeout;
  pollfd waiting{fd, POLLIN, 0};
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now());
    const int ready = ::poll(&waiting, 1, static_cast<int>(std::max<int64_t>(left.count(), 0)));
    if (ready >= 0 || errno != EINTR) return ready > 0;
  }
}

/// Runs the server on a thread of its own until it is drained: this one waits for signals. The
/// second signal ends the program at once (Interruption).
void run_until_signalled(server::HttpServer& server, const Interruption& interruption,
                         std::chrono::seconds drain_timeout) {
  const int finished_fd = ::eventfd(0, EFD_CLOEXEC);
  if (finished_fd < 0) fail(ErrorCode::kResourceExhausted, "cannot make an eventfd");
  std::thread thread([&server, finished_fd] {
    server.run();
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(finished_fd, &one, sizeof(one));
  });
  if (wait_for_signal(interruption, finished_fd)) {
    server.drain();
    if (!readable_within(finished_fd, drain_timeout)) {
      log_warning("requests still ran {} s after the signal and are cancelled",
                  drain_timeout.count());
      server.stop();
    }
  }
  thread.join();
  ::close(finished_fd);
}

std::string address(const server::HttpOptions& options, uint16_t port) {
  const bool ipv6 = options.host.find(':') != std::string::npos;
  const std::string host = ipv6 ? "[" + options.host + "]" : options.host;
  return fmt::format("http://{}:{}", host, port);
}

}  // namespace

int serve(std::span<const std::string> arguments) {
  Flags parser("serve",
               "Serves a model over HTTP: OpenAI's API, metrics and a chat page. SIGTERM lets "
               "requests end and takes no more; a second one stops at once.");
  ServeFlags flags;
  add_engine_flags(parser, flags.engine);
  add_serve_flags(parser, flags);
  if (!parser.parse(arguments)) return 0;
  if (flags.service.model_name.empty()) {
    const std::filesystem::path folder =
        std::filesystem::absolute(flags.engine.model).lexically_normal();
    flags.service.model_name =
        (folder.has_filename() ? folder : folder.parent_path()).filename().string();
  }
  if (flags.api_key_file) flags.service.keys = server::ApiKeys::read(*flags.api_key_file);
  flags.service.validate();
  flags.http.validate();

  const Interruption interruption;
  flags.engine.show_progress = true;
  const std::unique_ptr<Engine> engine = Engine::create(flags.engine);
  if (interruption.requested()) return interruption.exit_code();
  server::Service service(*engine, flags.service);
  server::HttpServer server(*engine, service, flags.http);
  Output().write(fmt::format("deepinfer: serving {} on {}\n", service.options().model_name,
                             address(flags.http, server.port())));
  run_until_signalled(server, interruption, std::chrono::seconds(flags.drain_timeout_s));
  return 0;
}

}  // namespace deepinfer::apps
