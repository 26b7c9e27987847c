// What the server costs besides the model, which a script replaces: processor time per streamed
// token of 256 streams with one write each (goal: < 30 µs), and the time from a chat's body to its
// place in the engine's queue (goal for 4,096 tokens: median < 250 µs without tokenizing, < 1.3 ms
// with it).

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "server/http_server.h"
#include "server/prompt.h"
#include "tests/server/fake_engine.h"
#include "tests/server/http_client.h"

namespace deepinfer::server {
namespace {

using testing::FakeEngine;
using testing::HttpClient;

constexpr int kStreams = 256;
constexpr int kTokens = 400;  // per stream
constexpr auto kStep = std::chrono::milliseconds(12);

double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

/// The reader of all streams, in a process of its own so that its time is not counted. Returns its
/// exit code: 0 if every stream came to its end.
int read_streams(int port_fd) {
  uint16_t port = 0;
  if (::read(port_fd, &port, sizeof(port)) != sizeof(port)) return 1;
  const int poll = ::epoll_create1(0);
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int i = 0; i < kStreams; ++i) {
    clients.push_back(std::make_unique<HttpClient>(port));
    clients.back()->post("/v1/chat/completions",
                         fmt::format(R"({{"messages":[{{"role":"user","content":"hi"}}],)"
                                     R"("stream":true,"ignore_eos":true,"max_tokens":{}}})",
                                     kTokens));
    epoll_event event{.events = EPOLLIN, .data = {.u32 = static_cast<uint32_t>(i)}};
    ::epoll_ctl(poll, EPOLL_CTL_ADD, clients.back()->fd(), &event);
  }
  int finished = 0;
  std::vector<char> bytes(size_t{1} << 16);
  std::vector<epoll_event> events(kStreams);
  while (finished < kStreams) {
    const int count = ::epoll_wait(poll, events.data(), kStreams, 30'000);
    if (count <= 0) return 1;
    for (int i = 0; i < count; ++i) {
      HttpClient& client = *clients[events[static_cast<size_t>(i)].data.u32];
      const ssize_t got = ::recv(client.fd(), bytes.data(), bytes.size(), 0);
      if (got <= 0) return 1;
      const std::string_view text(bytes.data(), static_cast<size_t>(got));
      if (text.find("data: [DONE]") == std::string_view::npos) continue;
      ++finished;
      client.close();
    }
  }
  return 0;
}

void bench_streams(int port_fd, pid_t reader) {
  FakeEngine engine(
      [](const Request&, int64_t index) { return static_cast<int32_t>(300 + index); });
  engine.pause(true);
  engine.set_period(kStep);
  Service service(engine, {.model_name = "tiny"});
  HttpServer server(engine, service, {.port = 0});
  std::jthread thread([&server] { server.run(); });
  const uint16_t port = server.port();
  if (::write(port_fd, &port, sizeof(port)) != sizeof(port)) std::abort();
  engine.wait_running(kStreams);
  const double before = cpu_seconds();
  engine.pause(false);
  int status = 0;
  ::waitpid(reader, &status, 0);
  const double used = cpu_seconds() - before;
  server.stop();
  if (status != 0) fmt::print("FAILED: some streams did not come to their end\n");
  fmt::print(
      "{} streams, {} tokens each, a step per {} ms: {:.1f} µs of processor time per token "
      "(goal < 30)\n",
      kStreams, kTokens, kStep.count(), 1e6 * used / (kStreams * kTokens));
}

template <typename Function>
double median_us(Function&& function) {
  std::vector<double> times;
  for (int i = 0; i < 300; ++i) {
    const auto start = std::chrono::steady_clock::now();
    function();
    times.push_back(
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
            .count());
  }
  std::ranges::nth_element(times, times.begin() + 150);
  return times[150];
}

void bench_admission() {
  FakeEngine engine(FakeEngine::writes("x"), 1 << 20);
  engine.pause(true);
  Service service(engine, {.model_name = "tiny"});
  const Tokenizer& tokenizer = testing::tiny_tokenizer();
  std::string text;
  for (int i = 0; tokenizer.encode(text).size() < 4550; ++i) {
    text += fmt::format("Once upon a time, in village {}, there lived a cat.\\n", i);
  }
  // Eight turns, as a conversation has them.
  std::string messages;
  for (int i = 0; i < 8; ++i) {
    messages += fmt::format(R"({}{{"role":"{}","content":"{}"}})", i == 0 ? "" : ",",
                            i % 2 == 0 ? "user" : "assistant",
                            text.substr(text.size() * static_cast<size_t>(i) / 8, text.size() / 8));
  }
  const std::string body = fmt::format(
      R"({{"messages":[{},{{"role":"user","content":"hi"}}],"max_tokens":9}})", messages);
  const PromptContext context{
      .tokenizer = &tokenizer, .vocab_size = tokenizer.vocab_size(), .thinking = false};
  const EncodedPrompt prompt =
      encode_prompts(parse_request(Api::kChat, body, RequestLimits()), context).front();
  const ChatPrompt rendered =
      render_chat(to_python_json(parse_request(Api::kChat, body, RequestLimits()).messages),
                  {.thinking = false});
  const double encode = median_us([&] { encode_chat(tokenizer, rendered); });
  Metrics metrics;
  const HttpRequest request{.method = "POST", .path = "/v1/chat/completions", .body = body};
  const double all = median_us([&] { service.handle(request, Clock::now(), metrics); });
  fmt::print(
      "a chat of {} tokens ({} bytes), parsed, rendered, admitted: {:.0f} µs without "
      "tokenizing (goal < 250), {:.0f} µs with it (goal < 1300)\n",
      prompt.ids.size(), body.size(), all - encode, all);
}

}  // namespace
}  // namespace deepinfer::server

int main() {
  int port_pipe[2];
  if (::pipe(port_pipe) != 0) return 1;
  const pid_t reader = ::fork();  // before there are threads
  if (reader == 0) ::_exit(deepinfer::server::read_streams(port_pipe[0]));
  deepinfer::server::bench_streams(port_pipe[1], reader);
  deepinfer::server::bench_admission();
  return 0;
}
