#include "server/service.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/server/fake_engine.h"

// Requests to answers, without sockets.
namespace deepinfer::server {
namespace {

using deepinfer::testing::FakeEngine;
using deepinfer::testing::tiny_tokenizer;
using nlohmann::json;

constexpr const char* kChat = "/v1/chat/completions";
constexpr const char* kCompletions = "/v1/completions";
constexpr const char* kResponses = "/v1/responses";

/// A service and what it counts.
struct Server {
  explicit Server(FakeEngine::Script script, ServiceOptions options = {}, int64_t max_len = 4096)
      : engine(std::move(script), max_len), service(engine, named(std::move(options))) {}

  static ServiceOptions named(ServiceOptions options) {
    options.model_name = "tiny";
    return options;
  }

  Reply post(const std::string& path, const json& body) {
    return service.handle({.method = "POST", .path = path, .body = body.dump()}, Clock::now(),
                          metrics);
  }
  /// The body of the complete answer.
  std::string finish(Reply& reply) {
    if (!reply.generation) return reply.body;
    std::string body;
    while (!reply.generation->advance(Clock::now(), metrics, body)) std::this_thread::yield();
    return body;
  }
  json ask(const std::string& path, const json& body) {
    Reply reply = post(path, body);
    const std::string text = finish(reply);
    const bool failed = reply.status != 200 || (reply.generation && reply.generation->error());
    EXPECT_FALSE(failed) << text;
    return json::parse(text);
  }
  json refused(const std::string& path, const json& body, int status = 400) {
    Reply reply = post(path, body);
    EXPECT_EQ(reply.status, status) << finish(reply);
    return reply.status == 200 ? json() : json::parse(reply.body)["error"];
  }

  FakeEngine engine;
  Service service;
  Metrics metrics;
};

/// The events of a stream: their data as JSON; "[DONE]" as that string.
std::vector<json> events(const std::string& body) {
  std::vector<json> events;
  for (size_t at = 0; at < body.size();) {
    const size_t end = body.find("\n\n", at);
    EXPECT_NE(end, std::string::npos);
    const size_t data = body.find("data: ", at) + 6;
    const std::string text = body.substr(data, end - data);
    events.push_back(text == "[DONE]" ? json(text) : json::parse(text));
    at = end + 2;
  }
  return events;
}

json user(const std::string& text) {
  return {{{"role", "user"}, {"content", text}}};
}

TEST(Completions, AnswersWithText) {
  Server server(FakeEngine::writes(" there was a cat."));
  const json answer = server.ask(kCompletions, {{"prompt", "Once"}, {"max_tokens", 50}});
  EXPECT_EQ(answer["object"], "text_completion");
  EXPECT_EQ(answer["model"], "tiny");
  EXPECT_EQ(answer["system_fingerprint"], "fake-0");
  EXPECT_EQ(answer["choices"][0]["text"], " there was a cat.");
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "stop");
  const size_t tokens = tiny_tokenizer().encode(" there was a cat.").size();
  EXPECT_EQ(answer["usage"]["completion_tokens"], tokens + 1);  // and the end token
  EXPECT_EQ(answer["usage"]["prompt_tokens"], tiny_tokenizer().encode("Once").size());
}

// B04, B11.
TEST(Completions, StreamEqualsTheWhole) {
  Server server(FakeEngine::writes(" über 猫 and 😀 there."));
  const json body = {{"prompt", {"a", "b"}}, {"n", 2}, {"max_tokens", 30}, {"stop", "ther"}};
  const json whole = server.ask(kCompletions, body);
  json streaming = body;
  streaming["stream"] = true;
  streaming["stream_options"] = {{"include_usage", true}};
  Reply reply = server.post(kCompletions, streaming);
  const std::vector<json> all = events(server.finish(reply));
  std::vector<std::string> texts(4);
  std::vector<int> reasons(4);
  for (size_t i = 0; i + 2 < all.size(); ++i) {
    EXPECT_TRUE(all[i]["usage"].is_null());
    const json& choice = all[i]["choices"][0];
    const size_t index = choice["index"];
    texts[index] += choice["text"].get<std::string>();
    reasons[index] += choice["finish_reason"].is_null() ? 0 : 1;
  }
  EXPECT_EQ(all[all.size() - 2]["choices"], json::array());
  EXPECT_EQ(all[all.size() - 2]["usage"], whole["usage"]);
  EXPECT_EQ(all.back(), "[DONE]");
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(texts[i], " über 猫 and 😀 ");
    EXPECT_EQ(json(texts[i]), whole["choices"][i]["text"]);
    EXPECT_EQ(reasons[i], 1);
  }
}

TEST(Completions, EchoRepeatsThePrompt) {
  Server server(FakeEngine::writes("b"));
  EXPECT_EQ(server.ask(kCompletions, {{"prompt", "a "}, {"echo", true}})["choices"][0]["text"],
            "a b");
  Reply reply = server.post(kCompletions, {{"prompt", "a "}, {"echo", true}, {"stream", true}});
  EXPECT_EQ(events(server.finish(reply))[0]["choices"][0]["text"], "a ");
}

TEST(Completions, SuffixPutsTheGapMarksAroundIt) {
  std::vector<int32_t> prompt;
  Server server([&prompt](const Request& request, int64_t) {
    prompt = request.prompt;
    return FakeEngine::kEos;
  });
  server.ask(kCompletions, {{"prompt", "f("}, {"suffix", ")<think>"}});
  EXPECT_EQ(tiny_tokenizer().decode(prompt),
            "<｜fim▁begin｜>f(<｜fim▁hole｜>)<think><｜fim▁end｜>");
  // What the user wrote is text, whatever it spells.
  const std::vector<int32_t> plain = tiny_tokenizer().encode(")<think>", SpecialTokens::kPlain);
  EXPECT_TRUE(std::search(prompt.begin(), prompt.end(), plain.begin(), plain.end()) !=
              prompt.end());
}

TEST(Completions, LogprobsListEveryToken) {
  Server server(FakeEngine::writes("ab cd"));
  const json choice = server.ask(kCompletions, {{"prompt", "x"}, {"logprobs", 2}})["choices"][0];
  const json& logprobs = choice["logprobs"];
  std::string text;
  for (const json& token : logprobs["tokens"]) text += token.get<std::string>();
  EXPECT_EQ(text, "ab cd");
  EXPECT_EQ(logprobs["token_logprobs"][0], -0.5);
  EXPECT_EQ(logprobs["top_logprobs"][0].size(), 2U);
  EXPECT_EQ(logprobs["text_offset"][0], 0);
}

// B07.
TEST(Completions, ChoicesHaveSeedsOfTheirOwn) {
  std::vector<uint64_t> seeds;
  Server server([&seeds](const Request& request, int64_t) {
    seeds.push_back(*request.sampling.seed);
    return FakeEngine::kEos;
  });
  server.ask(kCompletions, {{"prompt", "x"}, {"n", 3}, {"seed", 77}});
  const std::vector<uint64_t> first = seeds;
  ASSERT_EQ(first.size(), 3U);
  EXPECT_EQ(first[0], 77U);
  EXPECT_NE(first[1], first[2]);
  seeds.clear();
  server.ask(kCompletions, {{"prompt", "x"}, {"n", 3}, {"seed", 77}});
  EXPECT_EQ(seeds, first);
}

// B07: the end of one choice is not that of the others.
TEST(Completions, ChoicesEndOnTheirOwn) {
  const std::vector<int32_t> ids = tiny_tokenizer().encode("one two three four");
  const std::vector<int32_t> stop = tiny_tokenizer().encode("one two STOP four");
  Server server([&](const Request& request, int64_t index) {
    // Choice 0 has the request's own seed.
    const std::vector<int32_t>& text = *request.sampling.seed == 77 ? stop : ids;
    return index < std::ssize(text) ? text[static_cast<size_t>(index)] : FakeEngine::kEos;
  });
  Reply reply = server.post(kCompletions, {{"prompt", "x"},
                                           {"n", 3},
                                           {"seed", 77},
                                           {"stop", "STOP"},
                                           {"max_tokens", 100},
                                           {"stream", true}});
  std::vector<std::string> texts(3);
  std::vector<int> reasons(3);
  for (const json& event : events(server.finish(reply))) {
    if (!event.is_object()) continue;
    const json& choice = event["choices"][0];
    const size_t index = choice["index"];
    texts[index] += choice["text"].get<std::string>();
    reasons[index] += choice["finish_reason"].is_null() ? 0 : 1;
  }
  EXPECT_EQ(texts, (std::vector<std::string>{"one two ", "one two three four", texts[1]}));
  EXPECT_EQ(reasons, (std::vector<int>{1, 1, 1}));
}

TEST(Chat, AnswersWithAMessage) {
  Server server(FakeEngine::writes("Hello!"));
  const json answer = server.ask(kChat, {{"messages", user("hi")}});
  EXPECT_EQ(answer["object"], "chat.completion");
  EXPECT_EQ(answer["choices"][0]["message"]["content"], "Hello!");
  EXPECT_EQ(answer["choices"][0]["message"]["role"], "assistant");
  EXPECT_FALSE(answer["choices"][0]["message"].contains("reasoning_content"));
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "stop");
}

TEST(Chat, StopStringsEndTheContentAlone) {
  // The model goes on behind the stop string; nobody waits for that.
  Server server(FakeEngine::writes("one two STOP three" + std::string(500, 'x')));
  const json answer = server.ask(kChat, {{"messages", user("hi")}, {"stop", {"STOP"}}});
  EXPECT_EQ(answer["choices"][0]["message"]["content"], "one two ");
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "stop");
  const size_t most = tiny_tokenizer().encode("one two STOP three").size();
  EXPECT_LE(answer["usage"]["completion_tokens"], most);
  EXPECT_TRUE(server.engine.wait_idle());
}

TEST(Chat, ToolCallsAreParsed) {
  const std::string call =
      "\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"weather\">\n<｜DSML｜ parameter name=\"city\" "
      "string=\"true\">Bonn</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n</｜DSML｜ calls>";
  Server server(FakeEngine::writes("Let me see." + call));
  const json tools = {{{"type", "function"},
                       {"function", {{"name", "weather"}, {"parameters", {{"type", "object"}}}}}}};
  json body = {{"messages", user("hi")}, {"chat_template_kwargs", {{"thinking", false}}}};
  // The tiny vocabulary lacks the system token, which tools need.
  body["tools"] = tools;
  EXPECT_EQ(server.refused(kChat, body)["param"], "messages");
  body.erase("tools");
  const json choice = server.ask(kChat, body)["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  EXPECT_EQ(choice["message"]["content"], "Let me see.");
  const json& parsed = choice["message"]["tool_calls"][0];
  EXPECT_EQ(parsed["function"]["name"], "weather");
  EXPECT_EQ(json::parse(parsed["function"]["arguments"].get<std::string>()),
            json({{"city", "Bonn"}}));
  body["stream"] = true;
  Reply reply = server.post(kChat, body);
  const std::vector<json> all = events(server.finish(reply));
  EXPECT_EQ(all[0]["choices"][0]["delta"]["role"], "assistant");
  EXPECT_EQ(all[all.size() - 2]["choices"][0]["finish_reason"], "tool_calls");
  int64_t calls = 0;
  for (const json& event : all) {
    if (event.is_object() && event["choices"][0]["delta"].contains("tool_calls")) {
      EXPECT_EQ(event["choices"][0]["delta"]["tool_calls"][0]["index"], calls++);
    }
  }
  EXPECT_EQ(calls, 1);
  body["stream"] = false;
  body["tool_choice"] = "none";
  const json none = server.ask(kChat, body)["choices"][0];
  EXPECT_EQ(none["finish_reason"], "stop");
  EXPECT_FALSE(none["message"].contains("tool_calls"));
}

TEST(Chat, ReasoningIsSeparate) {
  // A prompt that ends inside the reasoning of a message to continue is as near as the tiny
  // vocabulary comes: reasoning needs the system token, which it lacks.
  Server server(FakeEngine::writes("x"));
  const json error = server.refused(
      kChat, {{"messages", user("hi")}, {"chat_template_kwargs", {{"thinking", true}}}});
  EXPECT_EQ(error["param"], "messages");
  EXPECT_NE(error["message"].get<std::string>().find("<｜System｜>"), std::string::npos);
  EXPECT_EQ(
      server.refused(kChat, {{"messages", user("hi")}, {"reasoning_effort", "ultra"}})["param"],
      "reasoning_effort");
}

TEST(Chat, LogprobsHoldBytes) {
  Server server(FakeEngine::writes("é"));
  const json answer =
      server.ask(kChat, {{"messages", user("hi")}, {"logprobs", true}, {"top_logprobs", 1}});
  std::vector<int> bytes;
  for (const json& token : answer["choices"][0]["logprobs"]["content"]) {
    for (const int byte : token["bytes"]) bytes.push_back(byte);
    EXPECT_EQ(token["top_logprobs"].size(), 1U);
  }
  EXPECT_EQ(bytes, (std::vector<int>{0xC3, 0xA9}));
}

TEST(Chat, IgnoredEndTokensDoNotEndIt) {
  Server server([](const Request&, int64_t index) {
    return index % 2 == 0 ? tiny_tokenizer().encode("a")[0] : FakeEngine::kEos;
  });
  const json answer =
      server.ask(kChat, {{"messages", user("hi")}, {"ignore_eos", true}, {"max_tokens", 9}});
  EXPECT_EQ(answer["choices"][0]["message"]["content"], "aaaaa");
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(answer["usage"]["completion_tokens"], 9);
}

TEST(Responses, BodyAndEventsAgree) {
  Server server(FakeEngine::writes("Hello!"));
  const json whole = server.ask(kResponses, {{"input", "hi"}});
  EXPECT_EQ(whole["status"], "completed");
  EXPECT_EQ(whole["output"][0]["content"][0]["text"], "Hello!");
  Reply reply = server.post(kResponses, {{"input", "hi"}, {"stream", true}});
  const std::vector<json> all = events(server.finish(reply));
  std::string text;
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i]["sequence_number"], i);
    if (all[i]["type"] == "response.output_text.delta") text += all[i]["delta"].get<std::string>();
  }
  EXPECT_EQ(text, "Hello!");
  EXPECT_EQ(all.front()["type"], "response.created");
  EXPECT_EQ(all.back()["type"], "response.completed");
  EXPECT_EQ(all.back()["response"]["output"][0]["content"], whole["output"][0]["content"]);
  EXPECT_EQ(all.back()["response"]["usage"], whole["usage"]);
  EXPECT_EQ(server.ask(kResponses, {{"input", "hi"}, {"max_output_tokens", 1}})["status"],
            "incomplete");
}

TEST(Tokenize, GoesBothWays) {
  Server server(FakeEngine::writes(""));
  const json tokens = server.ask("/tokenize", {{"prompt", "Hello wörld"}})["tokens"];
  EXPECT_EQ(server.ask("/detokenize", {{"tokens", tokens}})["text"], "Hello wörld");
  const json chat = server.ask("/tokenize", {{"messages", user("hi")}});
  EXPECT_EQ(server.ask("/detokenize", {{"tokens", chat["tokens"]}})["text"],
            "<｜begin▁of▁sentence｜><｜User｜>hi<｜Assistant｜></think>");
  EXPECT_EQ(server.refused("/detokenize", {{"tokens", {1 << 30}}})["param"], "tokens");
  EXPECT_EQ(server.refused("/tokenize", json::object())["param"], "prompt");
}

TEST(Service, RefusesWhatCanNeverFit) {
  Server server(FakeEngine::writes("x"), {}, 64);
  const std::vector<int32_t> ids(64, 5);
  json error = server.refused(kCompletions, {{"prompt", ids}});
  EXPECT_EQ(error["param"], "prompt");
  EXPECT_EQ(error["code"], "context_length_exceeded");
  error = server.refused(kCompletions, {{"prompt", {5}}, {"max_tokens", 64}});
  EXPECT_EQ(error["param"], "max_tokens");
  error = server.refused(kChat, {{"messages", user("a")}, {"max_completion_tokens", 64}});
  EXPECT_EQ(error["param"], "max_completion_tokens");
  EXPECT_TRUE(server.engine.wait_idle());
}

// B08; ids that no vocabulary has are refused by ApiRequest.RefusesWrongTypes.
TEST(Service, RefusesTokensOutsideTheVocabulary) {
  Server server(FakeEngine::writes("x"));
  const int64_t v = tiny_tokenizer().vocab_size();
  const auto param = [&](const json& body) { return server.refused(kCompletions, body)["param"]; };
  EXPECT_EQ(param({{"prompt", {{1, v + 3}}}}), "prompt");
  EXPECT_EQ(param({{"prompt", {{-1}}}}), "prompt");
  EXPECT_EQ(param({{"prompt", "a"}, {"logit_bias", {{std::to_string(v), 5}}}}), "logit_bias");
  EXPECT_EQ(param({{"prompt", "a"}, {"stop_token_ids", {v}}}), "stop_token_ids[0]");
  EXPECT_EQ(param({{"prompt", "a"}, {"min_tokens", 2}, {"stop_token_ids", {-7}}}),
            "stop_token_ids[0]");
  EXPECT_EQ(param({{"prompt", "a"}, {"min_tokens", 99}}), "min_tokens");
  EXPECT_EQ(param({{"prompt", "a"}, {"temperature", -1}}), "temperature");
  EXPECT_EQ(param({{"prompt", "a"}, {"stop", {""}}}), "stop[0]");
}

// B09.
TEST(Service, RefusesEmptyPrompts) {
  Server server(FakeEngine::writes("x"));
  const json shapes[] = {"", json::array({""}), json::array(), json::array({json::array()}),
                         json::array({{5}, json::array()})};
  for (const json& prompt : shapes) {
    EXPECT_EQ(server.refused(kCompletions, {{"prompt", prompt}})["param"], "prompt") << prompt;
  }
  EXPECT_EQ(server.refused(kChat, {{"messages", json::array()}})["param"], "messages");
  server.ask(kChat, {{"messages", user("")}});
  server.ask(kChat, {{"messages", {{{"role", "user"}, {"content", json::array()}}}}});
  EXPECT_TRUE(server.engine.wait_idle());
}

TEST(Service, RefusesOtherModels) {
  Server server(FakeEngine::writes("x"));
  EXPECT_EQ(server.refused(kCompletions, {{"prompt", "a"}, {"model", "gpt"}}, 404)["code"],
            "model_not_found");
  server.ask(kCompletions, {{"prompt", "a"}, {"model", "tiny"}});
}

TEST(Service, LimitsWhatRunsAtOnce) {
  Server server(FakeEngine::writes("x"), {.max_requests = 3});
  server.engine.pause(true);
  Reply first = server.post(kCompletions, {{"prompt", "a"}, {"n", 3}});
  EXPECT_EQ(server.service.active(), 3);
  EXPECT_EQ(server.refused(kCompletions, {{"prompt", "a"}}, 503)["type"], "overloaded_error");
  server.engine.pause(false);
  server.finish(first);
  first.generation.reset();
  EXPECT_EQ(server.service.active(), 0);
  server.ask(kCompletions, {{"prompt", "a"}});
}

// B11.
TEST(Service, EngineFaultsBecomeErrors) {
  Server server(FakeEngine::writes("a b c d e f g h"));
  server.engine.fail_at(3, "the table is damaged");
  Reply whole = server.post(kCompletions, {{"prompt", "a"}});
  EXPECT_EQ(server.finish(whole), "");
  EXPECT_EQ(whole.generation->error()->status(), 500);
  Reply stream = server.post(kChat, {{"messages", user("a")}, {"stream", true}, {"n", 2}});
  const std::vector<json> all = events(server.finish(stream));
  EXPECT_EQ(all.back()["error"]["message"], "the table is damaged");
  whole.generation.reset();
  stream.generation.reset();
  EXPECT_TRUE(server.engine.wait_idle());
}

TEST(Service, DroppingAnAnswerCancelsIt) {
  Server server(FakeEngine::writes(std::string(1000, 'x')));
  server.engine.pause(true);
  Reply reply = server.post(kChat, {{"messages", user("a")}, {"n", 4}});
  EXPECT_TRUE(server.engine.wait_running(4));
  reply.generation.reset();
  EXPECT_TRUE(server.engine.wait_idle());
}

// I05.
TEST(Service, KeysOpenEverythingButHealth) {
  ServiceOptions options{.keys = ApiKeys({"secret-1", "secret-2"})};
  Server server(FakeEngine::writes("x"), options);
  const auto status = [&](const std::string& method, const std::string& path,
                          const std::string& authorization, int count = 1) {
    const std::optional<Reply> refusal =
        server.service.refuse({.method = method,
                               .path = path,
                               .authorization = authorization,
                               .num_authorizations = authorization.empty() ? 0 : count});
    return refusal ? refusal->status : 200;
  };
  for (const char* path : {"/health", "/ready", "/ping"}) EXPECT_EQ(status("GET", path, ""), 200);
  for (const char* path : {"/", "/metrics", "/v1/models", "/v1/models/tiny", "/nowhere"}) {
    EXPECT_EQ(status("GET", path, ""), 401) << path;
  }
  for (const char* path : {"/v1/completions", "/v1/chat/completions", "/v1/responses", "/tokenize",
                           "/detokenize", "//v1/completions", "/V1/completions", "/v1/completions/",
                           "/v1/../v1/completions", "/health"}) {
    EXPECT_EQ(status("POST", path, ""), std::string(path) == "/health" ? 405 : 401) << path;
  }
  for (const char* wrong : {"Bearer", "Bearer ", "Bearer secret", "Bearer secret-11",
                            "Bearer secret-3", "Basic secret-1", "secret-1", "Bearer  secret-1"}) {
    EXPECT_EQ(status("POST", kChat, wrong), 401) << wrong;
  }
  EXPECT_EQ(status("POST", kChat, "Bearer secret-1"), 200);
  EXPECT_EQ(status("POST", kChat, "bearer secret-2"), 200);
  EXPECT_EQ(status("POST", kChat, "Bearer secret-1", 2), 401);
}

TEST(Service, RoutesAreExact) {
  Server server(FakeEngine::writes("x"));
  const auto status = [&](const std::string& method, const std::string& path) {
    const std::optional<Reply> refusal = server.service.refuse({.method = method, .path = path});
    return refusal ? refusal->status : 200;
  };
  EXPECT_EQ(status("GET", "/"), 200);
  EXPECT_EQ(status("HEAD", "/health"), 200);
  EXPECT_EQ(status("GET", kChat), 405);
  EXPECT_EQ(status("POST", "/metrics"), 405);
  EXPECT_EQ(status("POST", "/v1/embeddings"), 404);
  EXPECT_EQ(status("OPTIONS", kChat), 405);  // no CORS unless told so
}

TEST(Service, DrainingRefusesNewRequests) {
  Server server(FakeEngine::writes("x"));
  EXPECT_EQ(server.service.handle({.method = "GET", .path = "/ready"}, {}, server.metrics).status,
            200);
  server.service.drain();
  EXPECT_EQ(server.service.handle({.method = "GET", .path = "/ready"}, {}, server.metrics).status,
            503);
  EXPECT_EQ(server.service.handle({.method = "GET", .path = "/health"}, {}, server.metrics).status,
            200);
  server.refused(kCompletions, {{"prompt", "a"}}, 503);
}

TEST(Metrics, CountWhatWasServed) {
  Server server(FakeEngine::writes("a b"), {.metrics_prefix = "vllm:"});
  server.ask(kCompletions, {{"prompt", "Once"}, {"n", 2}});
  const std::string text =
      server.service.handle({.method = "GET", .path = "/metrics"}, {}, server.metrics).body;
  const auto has = [&](const std::string& line) {
    EXPECT_NE(text.find(line), std::string::npos) << line << " is not in\n" << text;
  };
  has("vllm:num_requests_running{model_name=\"tiny\"} 0\n");
  has("vllm:num_requests_waiting{model_name=\"tiny\"} 0\n");
  has("vllm:request_success_total{model_name=\"tiny\",finished_reason=\"stop\"} 2\n");
  has("vllm:time_to_first_token_seconds_count{model_name=\"tiny\"} 2\n");
  has("deepinfer_kv_pages{state=\"free\"} 8\n");
  EXPECT_GT(server.metrics.generation_tokens, 0);
}

}  // namespace
}  // namespace deepinfer::server
