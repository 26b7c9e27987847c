#include "server/http_server.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "tests/server/fake_engine.h"
#include "tests/server/http_client.h"

// The protocol, seen from raw sockets: what honest and hostile clients send.
namespace deepinfer::server {
namespace {

using deepinfer::testing::FakeEngine;
using deepinfer::testing::HttpAnswer;
using deepinfer::testing::HttpClient;
using nlohmann::json;
using std::chrono::milliseconds;

constexpr const char* kCompletions = "/v1/completions";
const std::string kPrompt = R"({"prompt":"hi"})";
const std::string kStream = R"({"prompt":"hi","stream":true,"max_tokens":4000,"ignore_eos":true})";

/// A server on a port of its own.
class Running {
 public:
  explicit Running(HttpOptions http = {}, ServiceOptions options = {},
                   FakeEngine::Script script = FakeEngine::writes("Hello there."))
      : engine(std::move(script)),
        service(engine, named(std::move(options))),
        server(engine, service, free_port(http)),
        thread_([this] { server.run(); }) {}
  ~Running() {
    engine.pause(false);
    server.stop();
  }

  uint16_t port() const { return server.port(); }
  /// A plain request still works, and nothing else is left.
  void expect_alive() {
    HttpClient client(port());
    client.post(kCompletions, kPrompt);
    EXPECT_EQ(client.answer().status, 200);
    EXPECT_TRUE(engine.wait_idle());
  }

  FakeEngine engine;
  Service service;
  HttpServer server;

 private:
  static ServiceOptions named(ServiceOptions options) {
    options.model_name = "tiny";
    return options;
  }
  static HttpOptions free_port(HttpOptions http) {
    http.port = 0;
    return http;
  }
  std::jthread thread_;
};

TEST(HttpServer, AnswersAndKeepsTheConnection) {
  Running running;
  HttpClient client(running.port());
  for (int i = 0; i < 3; ++i) {
    client.get("/health");
    EXPECT_EQ(client.answer().body, R"({"status":"ok"})");
    client.post(kCompletions, kPrompt);
    EXPECT_EQ(json::parse(client.answer().body)["choices"][0]["text"], "Hello there.");
  }
  client.get("/", "Connection: close\r\n");
  const HttpAnswer page = client.answer();
  EXPECT_EQ(page.headers.at("connection"), "close");
  EXPECT_NE(page.body.find("<!DOCTYPE html>"), std::string::npos);
  EXPECT_TRUE(client.closed());
}

TEST(HttpServer, AnswersPipelinedRequestsInOrder) {
  Running running;
  HttpClient client(running.port());
  const std::string post =
      "POST /tokenize HTTP/1.1\r\nContent-Length: 14\r\n\r\n{\"prompt\":\"a\"}";
  const std::string stream =
      "POST /v1/completions HTTP/1.1\r\nContent-Length: "
      "28\r\n\r\n{\"prompt\":\"a\",\"stream\":true}";
  client.send(post + stream + "GET /health HTTP/1.1\r\n\r\n" + stream + post);
  EXPECT_TRUE(json::parse(client.answer().body).contains("tokens"));
  EXPECT_NE(client.answer().body.find("data: [DONE]"), std::string::npos);
  EXPECT_EQ(client.answer().body, R"({"status":"ok"})");
  const HttpAnswer second = client.answer();
  EXPECT_TRUE(second.complete);
  EXPECT_NE(second.body.find("data: [DONE]"), std::string::npos);
  EXPECT_TRUE(json::parse(client.answer().body).contains("tokens"));
}

TEST(HttpServer, TakesRequestsByteByByte) {
  Running running;
  HttpClient client(running.port());
  const std::string request =
      "POST /tokenize HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
      "5\r\n{\"pro\r\n9\r\nmpt\":\"a\"}\r\n0\r\n\r\n";
  for (const char byte : request) client.send(std::string_view(&byte, 1));
  EXPECT_TRUE(json::parse(client.answer().body).contains("tokens"));
}

TEST(HttpServer, AnswersHeadWithoutABody) {
  Running running;
  HttpClient client(running.port());
  client.send("HEAD /health HTTP/1.1\r\n\r\nGET /health HTTP/1.1\r\n\r\n");
  EXPECT_EQ(client.answer(/*head=*/true).headers.at("content-length"), "15");
  EXPECT_EQ(client.answer().body, R"({"status":"ok"})");
}

TEST(HttpServer, SpeaksHttp10) {
  Running running;
  HttpClient client(running.port());
  client.send(
      "POST /v1/completions HTTP/1.0\r\nContent-Length: "
      "29\r\n\r\n{\"prompt\":\"hi\",\"stream\":true}");
  const HttpAnswer answer = client.answer();
  EXPECT_FALSE(answer.headers.contains("transfer-encoding"));
  EXPECT_TRUE(answer.body.ends_with("data: [DONE]\n\n")) << answer.body;
}

TEST(HttpServer, ContinuesWhenAsked) {
  Running running;
  HttpClient client(running.port());
  client.send("POST /tokenize HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 14\r\n\r\n");
  EXPECT_EQ(client.answer().status, 100);
  client.send("{\"prompt\":\"a\"}");
  EXPECT_EQ(client.answer().status, 200);
  client.send("POST /tokenize HTTP/1.1\r\nExpect: miracles\r\nContent-Length: 14\r\n\r\n");
  EXPECT_EQ(client.answer().status, 417);
}

TEST(HttpServer, RefusesMalformedHttp) {
  Running running;
  for (const char* request :
       {"\r\n\r\n", "nonsense\r\n\r\n", "GET\r\n\r\n", "GET /health HTTP/9.9\r\n\r\n",
        "GET /health HTTP/1.1\r\nno colon\r\n\r\n",
        "POST /tokenize HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        "POST /tokenize HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
        "POST /tokenize HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        "POST /tokenize HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        "GET / HTTP/1.1\r\n\x01: x\r\n\r\n"}) {
    HttpClient client(running.port());
    client.send(request);
    client.shutdown_send();
    const HttpAnswer answer = client.answer();
    EXPECT_TRUE(answer.status == 400 || answer.status == 505 || answer.status == 0)
        << request << answer.status;
    EXPECT_TRUE(client.closed());
  }
  running.expect_alive();
}

// I07.
TEST(HttpServer, LimitsHeadAndBody) {
  Running running({}, {.limits = {.max_body_bytes = 2000}});
  {
    HttpClient client(running.port());
    std::string lines = "GET /health HTTP/1.1\r\n";
    for (int i = 0; i < 10'000; ++i) lines += "X-" + std::to_string(i) + ": y\r\n";
    client.send(lines + "\r\n");
    EXPECT_EQ(client.answer().status, 431);
  }
  {
    HttpClient client(running.port());
    client.post("/tokenize", std::string(200'000, ' '));
    const HttpAnswer answer = client.answer();
    EXPECT_EQ(answer.status, 413);
    EXPECT_EQ(json::parse(answer.body)["error"]["type"], "invalid_request_error");
    EXPECT_TRUE(client.closed());
  }
  {
    HttpClient client(running.port());
    client.send("POST /tokenize HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2000\r\n" +
                std::string(0x2000, ' '));
    EXPECT_EQ(client.answer().status, 413);
  }
  running.expect_alive();
}

// I07.
TEST(HttpServer, EndsSlowRequests) {
  Running running({.header_timeout = milliseconds(300),
                   .body_timeout = milliseconds(300),
                   .idle_timeout = milliseconds(300)});
  HttpClient silent(running.port());
  HttpClient head(running.port());
  HttpClient body(running.port());
  head.send("GET /health HTT");
  body.send("POST /tokenize HTTP/1.1\r\nContent-Length: 14\r\n\r\n{");
  EXPECT_TRUE(silent.closed());
  EXPECT_EQ(head.answer().status, 408);
  EXPECT_EQ(body.answer().status, 408);
  running.expect_alive();
}

TEST(HttpServer, RefusesForeignContentTypes) {
  Running running;
  HttpClient client(running.port());
  client.send(
      "POST /tokenize HTTP/1.1\r\nContent-Type: text/plain\r\nContent-Length: "
      "14\r\n\r\n{\"prompt\":\"a\"}");
  EXPECT_EQ(client.answer().status, 415);
  HttpClient charset(running.port());
  charset.send(
      "POST /tokenize HTTP/1.1\r\nContent-Type: Application/JSON; charset=utf-8\r\nContent-Length: "
      "14\r\n\r\n{\"prompt\":\"a\"}");
  EXPECT_EQ(charset.answer().status, 200);
}

// F04.
TEST(HttpServer, CancelsForClientsThatLeave) {
  Running running({}, {}, [](const Request&, int64_t) { return 5; });
  running.engine.set_period(milliseconds(5));  // the stream lasts longer than anybody looks away
  const auto starts = [&](const std::string& body) {
    auto client = std::make_unique<HttpClient>(running.port());
    client->post(kCompletions, body);
    EXPECT_TRUE(running.engine.wait_running(1));
    return client;
  };
  // In the middle of a stream.
  auto client = starts(kStream);
  EXPECT_TRUE(client->read_until("data: "));
  running.engine.pause(true);
  client->close();
  EXPECT_TRUE(running.engine.wait_idle());
  // Before there is any output.
  client = starts(kStream);
  client->close();
  EXPECT_TRUE(running.engine.wait_idle());
  // Without a stream; several choices.
  client = starts(R"({"prompt":["hi","ho"],"n":3,"max_tokens":3000})");
  EXPECT_TRUE(running.engine.wait_running(6));
  client->close();
  EXPECT_TRUE(running.engine.wait_idle());
  // Half.
  client = starts(kStream);
  client->shutdown_send();
  EXPECT_TRUE(running.engine.wait_idle());
  running.engine.pause(false);
  running.expect_alive();
}

TEST(HttpServer, CutsOffReadersThatAreTooSlow) {
  Running running({.max_unsent_bytes = 4096}, {}, [](const Request&, int64_t) { return 5; });
  running.engine.set_period(milliseconds(2));
  HttpClient client(running.port());
  // Sixty-four choices fill the socket's buffers faster than one.
  client.post(
      kCompletions,
      R"({"prompt":"hi","stream":true,"max_tokens":4000,"ignore_eos":true,"n":64,"logprobs":20})");
  EXPECT_TRUE(running.engine.wait_running(64));
  EXPECT_TRUE(running.engine.wait_idle());
  EXPECT_TRUE(client.closed());
  EXPECT_EQ(client.buffer().find("[DONE]"), std::string::npos);
  HttpClient next(running.port());
  next.post(kCompletions, kPrompt);
  EXPECT_EQ(next.answer().status, 200);
}

TEST(HttpServer, SaysThatItStillRuns) {
  Running running({.silence = milliseconds(100)});
  running.engine.pause(true);
  HttpClient client(running.port());
  client.post(kCompletions, R"({"prompt":"hi","stream":true})");
  EXPECT_TRUE(client.read_until(": still running\n\n"));
  running.engine.pause(false);
  const HttpAnswer answer = client.answer();
  EXPECT_TRUE(answer.complete);
  EXPECT_TRUE(answer.body.ends_with("data: [DONE]\n\n"));
}

TEST(HttpServer, SaysNothingBeforeTheSilenceIsLong) {
  Running running({.idle_timeout = milliseconds(500)});
  running.engine.pause(true);
  HttpClient client(running.port());
  client.post(kCompletions, R"({"prompt":"hi","stream":true})");
  EXPECT_TRUE(running.engine.wait_running(1));
  EXPECT_TRUE(HttpClient(running.port()).closed());  // long enough to look for silent streams
  running.engine.pause(false);
  EXPECT_TRUE(client.answer().body.starts_with("data: "));
}

TEST(HttpServer, RefusesConnectionsBeyondItsLimit) {
  Running running({.max_connections = 2});
  HttpClient first(running.port());
  first.get("/health");
  EXPECT_EQ(first.answer().status, 200);
  HttpClient second(running.port());
  second.get("/health");
  EXPECT_EQ(second.answer().status, 200);
  HttpClient third(running.port());
  EXPECT_EQ(third.answer().status, 503);
  EXPECT_TRUE(third.closed());
}

TEST(HttpServer, ChecksTheKeyBeforeTheBody) {
  Running running({}, {.keys = ApiKeys({"k"})});
  HttpClient client(running.port());
  // The body never comes.
  client.send("POST /v1/completions HTTP/1.1\r\nContent-Length: 1000\r\n\r\n");
  const HttpAnswer answer = client.answer();
  EXPECT_EQ(answer.status, 401);
  EXPECT_EQ(answer.headers.at("www-authenticate"), "Bearer");
  HttpClient keyed(running.port());
  keyed.post(kCompletions, kPrompt, "Authorization: Bearer k\r\n");
  EXPECT_EQ(keyed.answer().status, 200);
  keyed.post(kCompletions, kPrompt, "Authorization: Bearer k\r\nAuthorization: Bearer k\r\n");
  EXPECT_EQ(keyed.answer().status, 401);
}

TEST(HttpServer, LetsOtherOriginsInWhenToldTo) {
  Running running({}, {.cors_origin = "https://a.example"});
  HttpClient client(running.port());
  client.send("OPTIONS /v1/completions HTTP/1.1\r\nOrigin: https://a.example\r\n\r\n");
  const HttpAnswer preflight = client.answer();
  EXPECT_EQ(preflight.status, 204);
  EXPECT_EQ(preflight.headers.at("access-control-allow-origin"), "https://a.example");
  client.get("/health");
  EXPECT_EQ(client.answer().headers.at("access-control-allow-origin"), "https://a.example");
}

// B11.
TEST(HttpServer, EngineFaultBeforeTheHeadIsAStatus) {
  Running running;
  running.engine.fail_at(0, "broken");
  HttpClient client(running.port());
  client.post(kCompletions, kPrompt);
  EXPECT_EQ(client.answer().status, 500);
  client.post(kCompletions, R"({"prompt":"hi","stream":true})");
  const HttpAnswer stream = client.answer();
  EXPECT_TRUE(stream.complete);
  EXPECT_NE(stream.body.find("\"message\":\"broken\""), std::string::npos);
  EXPECT_EQ(stream.body.find("[DONE]"), std::string::npos);
}

TEST(HttpServer, DrainsBeforeItEnds) {
  FakeEngine engine(FakeEngine::writes("Hello there."));
  Service service(engine, {.model_name = "tiny"});
  HttpServer server(engine, service, {.port = 0});
  std::jthread thread([&server] { server.run(); });
  HttpClient idle(server.port());
  idle.get("/health");
  EXPECT_EQ(idle.answer().status, 200);
  engine.pause(true);
  HttpClient busy(server.port());
  busy.post(kCompletions, R"({"prompt":"hi","stream":true})");
  EXPECT_TRUE(engine.wait_running(1));
  const uint16_t port = server.port();
  server.drain();
  EXPECT_TRUE(idle.closed());
  EXPECT_FALSE(HttpClient(port).connected());
  engine.pause(false);
  const HttpAnswer answer = busy.answer();
  EXPECT_TRUE(answer.complete);
  EXPECT_TRUE(answer.body.ends_with("data: [DONE]\n\n"));
  EXPECT_TRUE(busy.closed());
  thread.join();
}

TEST(HttpServer, StopsWithRequestsRunning) {
  FakeEngine engine([](const Request&, int64_t) { return 5; });
  engine.pause(true);  // nothing ends by itself
  {
    Service service(engine, {.model_name = "tiny"});
    HttpServer server(engine, service, {.port = 0});
    std::jthread thread([&server] { server.run(); });
    HttpClient client(server.port());
    client.post(kCompletions, kStream);
    EXPECT_TRUE(engine.wait_running(1));
    server.stop();
  }
  EXPECT_TRUE(engine.wait_idle());
}

TEST(HttpServer, RefusesAddressesItCannotHave) {
  FakeEngine engine(FakeEngine::writes("x"));
  Service service(engine, {.model_name = "tiny"});
  HttpServer first(engine, service, {.port = 0});
  EXPECT_THROW(HttpServer(engine, service, {.port = first.port()}), Error);
  EXPECT_THROW(HttpServer(engine, service, {.host = "no such host", .port = 0}), Error);
}

}  // namespace
}  // namespace deepinfer::server
