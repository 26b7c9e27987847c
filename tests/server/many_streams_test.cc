#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "server/http_server.h"
#include "tests/server/fake_engine.h"
#include "tests/server/http_client.h"

// A thousand streams at once: every one gets every byte.
namespace deepinfer::server {
namespace {

using deepinfer::testing::FakeEngine;
using deepinfer::testing::HttpAnswer;
using deepinfer::testing::HttpClient;

/// A text that differs from stream to stream and place to place.
std::string story(int64_t number) {
  std::string text;
  for (int64_t i = 0; i < 40; ++i) text += fmt::format(" {} naïve", number * 1000 + i);
  return text;
}

TEST(HttpServer, ThousandStreamsLoseNothing) {
  constexpr int64_t kStreams = 1000;
  // The prompt says which text to write.
  std::vector<std::vector<int32_t>> texts;
  for (int64_t i = 0; i < kStreams; ++i) {
    texts.push_back(deepinfer::testing::tiny_tokenizer().encode(story(i)));
  }
  FakeEngine engine([&texts](const Request& request, int64_t index) {
    const std::vector<int32_t>& text = texts[static_cast<size_t>(request.prompt.size() - 1)];
    const auto at = static_cast<size_t>(index);
    return at < text.size() ? text[at] : FakeEngine::kEos;
  });
  engine.pause(true);
  Service service(engine, {.model_name = "tiny"});
  HttpServer server(engine, service, {.port = 0});
  std::jthread thread([&server] { server.run(); });
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int64_t i = 0; i < kStreams; ++i) {
    std::string prompt = "[5";
    for (int64_t j = 0; j < i; ++j) prompt += ",5";
    clients.push_back(std::make_unique<HttpClient>(server.port()));
    ASSERT_TRUE(clients.back()->connected());
    clients.back()->post(
        "/v1/completions",
        fmt::format(R"({{"stream":true,"max_tokens":2000,"prompt":{}]}})", prompt));
  }
  ASSERT_TRUE(engine.wait_running(kStreams));
  engine.pause(false);
  for (int64_t i = 0; i < kStreams; ++i) {
    const HttpAnswer answer = clients[static_cast<size_t>(i)]->answer();
    ASSERT_TRUE(answer.complete) << i;
    ASSERT_TRUE(answer.body.ends_with("data: [DONE]\n\n")) << i;
    std::string text;
    const std::string mark = R"("text":")";
    for (size_t at = 0; (at = answer.body.find(mark, at)) != std::string::npos;) {
      at += mark.size();
      text += answer.body.substr(at, answer.body.find('"', at) - at);
    }
    ASSERT_EQ(text, story(i)) << i;
  }
  EXPECT_TRUE(engine.wait_idle());
  EXPECT_EQ(service.active(), 0);
  server.stop();
}

}  // namespace
}  // namespace deepinfer::server
