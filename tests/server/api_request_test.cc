#include "server/api_request.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

#include "server/api_error.h"
#include "server/fields.h"

// Bodies of requests: what is read, and what is refused with which field.
namespace deepinfer::server {
namespace {

constexpr Api kApis[] = {Api::kChat, Api::kCompletions, Api::kResponses, Api::kTokenize,
                         Api::kDetokenize};
constexpr std::string_view kMessages = R"("messages":[{"role":"user","content":"hi"}])";

ApiRequest parse(Api api, const std::string& body) {
  return parse_request(api, body, RequestLimits());
}
ApiRequest chat(const std::string& members) {
  return parse(Api::kChat,
               fmt::format("{{{}{}{}}}", kMessages, members.empty() ? "" : ",", members));
}
ApiRequest completion(const std::string& members) {
  return parse(Api::kCompletions, fmt::format(R"({{"prompt":"hi",{}}})", members));
}

/// Expects a 400 about a field whose message holds a part.
template <typename Function>
void expect_refused(Function&& call, const std::string& param, const std::string& part = "") {
  try {
    call();
    ADD_FAILURE() << "accepted, expected an error about " << param;
  } catch (const ApiError& error) {
    EXPECT_EQ(error.status(), 400) << error.what();
    EXPECT_EQ(error.param(), param) << error.what();
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST(ApiRequest, ReadsSamplingFields) {
  const ApiRequest request = chat(
      R"("temperature":0.5,"top_p":0.9,"top_k":-1,"min_p":0.1,"frequency_penalty":1,)"
      R"("presence_penalty":-1,"repetition_penalty":1.5,"seed":-3,"stop":["a","b"],)"
      R"("stop_token_ids":[3,4],"min_tokens":2,"ignore_eos":true,"logit_bias":{"7":-100},)"
      R"("max_completion_tokens":9,"n":3,"stream":true,"stream_options":{"include_usage":true})");
  EXPECT_EQ(request.sampling.temperature, 0.5F);
  EXPECT_EQ(request.sampling.top_p, 0.9F);
  EXPECT_EQ(request.sampling.top_k, -1);
  EXPECT_EQ(request.sampling.min_p, 0.1F);
  EXPECT_EQ(request.sampling.frequency_penalty, 1);
  EXPECT_EQ(request.sampling.presence_penalty, -1);
  EXPECT_EQ(request.sampling.repetition_penalty, 1.5F);
  EXPECT_EQ(request.sampling.seed, static_cast<uint64_t>(-3));
  EXPECT_EQ(request.sampling.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(request.sampling.stop_token_ids, (std::vector<int32_t>{3, 4}));
  EXPECT_EQ(request.sampling.min_tokens, 2);
  EXPECT_TRUE(request.sampling.ignore_eos);
  EXPECT_EQ(request.sampling.logit_bias, (std::vector<std::pair<int32_t, float>>{{7, -100.0F}}));
  EXPECT_EQ(request.max_tokens, 9);
  EXPECT_EQ(request.max_tokens_field, "max_completion_tokens");
  EXPECT_EQ(request.n, 3);
  EXPECT_TRUE(request.stream);
  EXPECT_TRUE(request.include_usage);
}

/// A body that a route accepts, with one more member. The route's own field may be that member.
std::string body_with(Api api, std::string_view name, std::string_view value) {
  const std::string_view own = api == Api::kChat         ? kMessages
                               : api == Api::kResponses  ? R"("input":"hi")"
                               : api == Api::kDetokenize ? R"("tokens":[1])"
                                                         : R"("prompt":"hi")";
  const bool twice = own.substr(1, own.find('"', 1) - 1) == name;
  return fmt::format(R"({{{}{}"{}":{}}})", twice ? "" : own, twice ? "" : ",", name, value);
}

TEST(ApiRequest, NullIsAbsentForEveryField) {
  for (const Api api : kApis) {
    for (const Field& field : fields_of(api)) {
      if (field.name == "messages" || field.name == "prompt" || field.name == "input" ||
          field.name == "tokens") {
        continue;
      }
      const std::string body = body_with(api, field.name, "null");
      EXPECT_NO_THROW(parse(api, body)) << body;
    }
  }
}

// I02 (constraints), I03 (templates), I07 (prompt_logprobs) among others.
TEST(ApiRequest, RefusesUnsupportedFieldsByName) {
  for (const Api api : kApis) {
    for (const Field& field : fields_of(api)) {
      if (field.support != Support::kNo && field.support != Support::kFixed) continue;
      const std::string name(field.name);
      const char* const wrong = field.support == Support::kNo ? "1" : R"({"no":"such value"})";
      expect_refused([&] { parse(api, fmt::format(R"({{"{}":{}}})", name, wrong)); }, name);
    }
  }
}

TEST(ApiRequest, AcceptsFixedFieldsAtTheirValues) {
  for (const Api api : {Api::kChat, Api::kResponses}) {
    for (const Field& field : fields_of(api)) {
      if (field.support != Support::kFixed) continue;
      const std::string values(field.fixed);
      const std::string value = values.substr(0, values.find(" | "));
      const std::string body = body_with(api, field.name, value);
      EXPECT_NO_THROW(parse(api, body)) << body;
    }
  }
}

TEST(ApiRequest, RefusesUnknownFieldsByName) {
  for (const Api api : kApis) {
    expect_refused([&] { parse(api, R"({"no_such_field":1})"); }, "no_such_field", "no_such_field");
  }
}

// B08, I07.
TEST(ApiRequest, RefusesWrongTypes) {
  for (const char* body : {R"("temperature":"hot")",
                           R"("temperature":true)",
                           R"("top_p":[1])",
                           R"("n":1.5)",
                           R"("n":0)",
                           R"("n":-1)",
                           R"("n":100000)",
                           R"("max_tokens":0)",
                           R"("max_tokens":1e300)",
                           R"("seed":0.5)",
                           R"("seed":1e30)",
                           R"("stop":5)",
                           R"("stop":[1])",
                           R"("stream":1)",
                           R"("logprobs":2)",
                           R"("top_logprobs":21)",
                           R"("top_logprobs":-1)",
                           R"("top_logprobs":3)",
                           R"("stop_token_ids":[2147483648])",
                           R"("stop_token_ids":["1"])",
                           R"("logit_bias":[1])",
                           R"("ignore_eos":"yes")",
                           R"("cache_salt":"")",
                           R"("tools":{})",
                           R"("thinking":true)"}) {
    std::string field(body);
    field = field.substr(1, field.find('"', 1) - 1);
    try {
      chat(body);
      ADD_FAILURE() << body << " was accepted";
    } catch (const ApiError& error) {
      EXPECT_EQ(error.param().substr(0, field.size()), field) << error.what();
    }
  }
}

// B08.
TEST(ApiRequest, LogitBiasTakesTokenIdsOnly) {
  for (const char* key : {"-1", "abc", "", "1.5", " 1", "2147483648", "1e3"}) {
    expect_refused([&] { chat(fmt::format(R"("logit_bias":{{"{}":5}})", key)); }, "logit_bias");
  }
}

// B04.
TEST(ApiRequest, StreamOptionsNeedAStream) {
  expect_refused([] { chat(R"("stream_options":{"include_usage":true})"); }, "stream_options");
  expect_refused([] { chat(R"("stream":false,"stream_options":{})"); }, "stream_options");
}

TEST(ApiRequest, MaxTokensFieldsMustAgree) {
  EXPECT_EQ(chat(R"("max_tokens":5,"max_completion_tokens":5)").max_tokens, 5);
  expect_refused([] { chat(R"("max_tokens":5,"max_completion_tokens":6)"); },
                 "max_completion_tokens");
}

// I08.
TEST(ApiRequest, RefusesMalformedBodies) {
  for (const std::string& body :
       {std::string(), std::string("{"), std::string("[]"), std::string("null"),
        std::string("{\"prompt\":NaN}"), std::string("{\"prompt\":\"a\",\"prompt\":\"b\"}"),
        std::string("{\"prompt\":\"\xC3\x28\"}"), std::string("{\"prompt\":\"\\ud83d\"}"),
        std::string("{\"prompt\":\"a\"}\0", 15), std::string(100, '['),
        std::string("{\"prompt\":[[[[") + std::string(100, '[')}) {
    EXPECT_THROW(parse(Api::kCompletions, body), ApiError) << body;
  }
  EXPECT_EQ(parse(Api::kCompletions, R"({"prompt":"ok \ud83d\ude00 a\u0000b"})").prompts[0].text,
            std::string("ok \xF0\x9F\x98\x80 a\0b", 11));
}

// I07.
TEST(ApiRequest, BoundsTheNumberOfValues) {
  const RequestLimits limits{.max_json_values = 1000};
  std::string body = R"({"prompt":"hi","stop":[)";
  for (int i = 0; i < 50000; ++i) body += "[],";
  EXPECT_THROW(parse_request(Api::kCompletions, body + "[]]}", limits), ApiError);
  // Commas in a text are no values.
  const std::string text(200000, ',');
  EXPECT_NO_THROW(
      parse_request(Api::kCompletions, fmt::format(R"({{"prompt":"{}"}})", text), limits));
}

TEST(ApiRequest, ReadsPromptsInAllShapes) {
  EXPECT_EQ(completion(R"("n":2)").prompts.size(), 1U);
  EXPECT_EQ(parse(Api::kCompletions, R"({"prompt":[1,2]})").prompts[0].ids,
            (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(parse(Api::kCompletions, R"({"prompt":["a",[3]]})").prompts[1].ids,
            (std::vector<int32_t>{3}));
  expect_refused([] { parse(Api::kCompletions, R"({"prompt":[]})"); }, "prompt");
  expect_refused([] { parse(Api::kCompletions, R"({"prompt":{}})"); }, "prompt");
  expect_refused([] { parse(Api::kCompletions, R"({"prompt":[1,"a"]})"); }, "prompt[1]");
  expect_refused([] { parse(Api::kCompletions, "{}"); }, "prompt");
  std::string many = R"({"prompt":[")";
  for (int i = 0; i < 1000; ++i) many += "a\",\"";
  expect_refused([&] { parse(Api::kCompletions, many + "a\"]}"); }, "prompt");
}

TEST(ApiRequest, ChecksMessages) {
  const auto with = [](const std::string& messages) {
    return [messages] { parse(Api::kChat, fmt::format(R"({{"messages":{}}})", messages)); };
  };
  expect_refused(with("[]"), "messages");
  expect_refused(with("{}"), "messages");
  expect_refused(with("[1]"), "messages[0]");
  expect_refused(with(R"([{"role":"user","content":"a","name":"bob"}])"), "messages[0].name");
  expect_refused(with(R"([{"role":"user","content":"a","wo_eos":true}])"), "messages[0].wo_eos");
  expect_refused(with(R"([{"role":"user","content":[{"type":"image_url","image_url":{}}]}])"),
                 "messages[0].content[0].type", "image_url");
  expect_refused(with(R"([{"role":"user","content":[{"text":"a"}]}])"),
                 "messages[0].content[0].type");
  // What OpenAI's client sends back of an answer.
  EXPECT_NO_THROW(with(R"([{"role":"assistant","content":"a","refusal":null,"annotations":[],)"
                       R"("audio":null,"function_call":null,"tool_calls":null}])")());
  const ApiRequest request = parse(
      Api::kChat,
      R"({"messages":[{"role":"developer","content":"s"},{"role":"assistant","content":"x","prefix":true}]})");
  EXPECT_EQ(request.messages.values[0].find("role")->text, "system");
  EXPECT_EQ(request.messages.values[1].find("prefix"), nullptr);
  EXPECT_TRUE(request.continue_final_message);
}

TEST(ApiRequest, ChecksTools) {
  EXPECT_NO_THROW(
      chat(R"("tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"auto")"));
  EXPECT_FALSE(chat(R"("tool_choice":"none")").tools_offered);
  expect_refused([] { chat(R"("tool_choice":"required")"); }, "tool_choice", "structured");
  expect_refused([] { chat(R"("tool_choice":{"type":"function","function":{"name":"f"}})"); },
                 "tool_choice");
  expect_refused([] { chat(R"("tools":[{"type":"web"}])"); }, "tools[0].type");
  expect_refused([] { chat(R"("tools":[{"type":"function"}])"); }, "tools[0].function");
  expect_refused(
      [] { chat(R"("tools":[{"type":"function","function":{"name":"f","strict":true}}])"); },
      "tools[0].function.strict");
}

// I03: known names only.
TEST(ApiRequest, ReadsReasoningSwitches) {
  EXPECT_EQ(chat("").thinking, std::nullopt);
  EXPECT_EQ(chat(R"("reasoning_effort":"max")").effort, "max");
  EXPECT_EQ(chat(R"("reasoning_effort":42)").effort, "42");
  EXPECT_EQ(chat(R"("reasoning_effort":"none")").thinking, false);
  EXPECT_EQ(chat(R"("thinking":{"type":"disabled"})").thinking, false);
  EXPECT_EQ(chat(R"("chat_template_kwargs":{"thinking":true})").thinking, true);
  for (const char* kwargs : {R"({"tokenize":false})", R"({"messages":[]})", R"({"tools":[]})",
                             R"({"chat_template":"x"})"}) {
    EXPECT_THROW(chat(fmt::format(R"("chat_template_kwargs":{})", kwargs)), ApiError);
  }
}

TEST(ApiRequest, ReadsResponsesInput) {
  const ApiRequest request =
      parse(Api::kResponses,
            R"({"input":[{"role":"developer","content":"s"},{"type":"message","role":"user",)"
            R"("content":[{"type":"input_text","text":"hi"}]}],"max_output_tokens":3,)"
            R"("reasoning":{"effort":"low","summary":null},"text":{"format":{"type":"text"}}})");
  EXPECT_EQ(to_python_json(request.messages),
            R"([{"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "text", )"
            R"("text": "hi"}]}])");
  EXPECT_EQ(request.effort, "low");
  EXPECT_EQ(request.max_tokens, 3);
  expect_refused([] { parse(Api::kResponses, R"({"input":[{"type":"function_call_output"}]})"); },
                 "input[0].type");
  expect_refused([] { parse(Api::kResponses, R"({"input":"a","previous_response_id":"x"})"); },
                 "previous_response_id");
}

TEST(ApiRequest, DocumentationHasTheTables) {
  std::ifstream file(std::string(DEEPINFER_SOURCE_DIR) + "/docs/api.md");
  std::stringstream text;
  text << file.rdbuf();
  for (const Api api : kApis) {
    EXPECT_NE(text.str().find(markdown_table(api)), std::string::npos)
        << "docs/api.md lacks the table of " << path_of(api) << ", which is now\n"
        << markdown_table(api);
  }
}

TEST(ApiError, TakesTheFieldFromTheMessage) {
  const auto param = [](const char* message) {
    return to_api_error(Error(ErrorCode::kInvalidArgument, message), "prompt").param();
  };
  EXPECT_EQ(param("top_p is 3, expected less"), "top_p");
  EXPECT_EQ(param("messages[1].content: no text"), "messages[1].content");
  EXPECT_EQ(param("stop[0] is empty"), "stop[0]");
  EXPECT_EQ(param("the prompt has 5 tokens"), "prompt");
  EXPECT_EQ(param("token 3 of the prompt is -1"), "prompt");
  EXPECT_EQ(param("The end"), "prompt");
}

TEST(ApiError, IsShapedAsOpenAis) {
  EXPECT_EQ(
      error_json(ApiError(400, "a \"b\" \xFF", "n")),
      "{\"error\":{\"message\":\"a \\\"b\\\" \xEF\xBF\xBD\",\"type\":\"invalid_request_error\","
      "\"param\":\"n\",\"code\":null}}");
}

}  // namespace
}  // namespace deepinfer::server
