#include "server/service.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <new>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/philox.h"
#include "server/fields.h"
#include "server/json_out.h"

namespace deepinfer::server {
namespace {

/// Tokens of an answer when a completion does not say how many, as in OpenAI's API.
constexpr int64_t kDefaultCompletionTokens = 16;

struct Route {
  std::string_view path;
  bool open;  // needs no key
};
constexpr std::array<Route, 6> kGetRoutes = {{{"/", false},
                                              {"/health", true},
                                              {"/ready", true},
                                              {"/ping", true},
                                              {"/metrics", false},
                                              {"/v1/models", false}}};
constexpr std::array<Api, 5> kApis = {Api::kChat, Api::kCompletions, Api::kResponses,
                                      Api::kTokenize, Api::kDetokenize};

const Route* get_route(std::string_view path) {
  const auto found = std::ranges::find(kGetRoutes, path, &Route::path);
  return found == kGetRoutes.end() ? nullptr : found;
}

std::optional<Api> post_route(std::string_view path) {
  const auto found = std::ranges::find(kApis, path, path_of);
  return found == kApis.end() ? std::nullopt : std::optional<Api>(*found);
}

bool is_model_route(std::string_view path) {
  return path.starts_with("/v1/models/");
}

/// Choice number `number` of a seed: the first is that of a request with one choice.
uint64_t choice_seed(uint64_t seed, int64_t number) {
  return number == 0 ? seed : mix64(seed + mix64(static_cast<uint64_t>(number)));
}

std::string ids_json(const std::vector<int32_t>& ids) {
  return fmt::format("[{}]", fmt::join(ids, ","));
}

}  // namespace

void ServiceOptions::validate() const {
  limits.validate();
  if (max_requests < 1 || max_requests > (int64_t{1} << 24)) {
    fail(ErrorCode::kInvalidArgument, "max_requests is {}, expected 1 to {}", max_requests,
         int64_t{1} << 24);
  }
  if (model_name.empty()) fail(ErrorCode::kInvalidArgument, "model_name is empty");
  if (thinking != "on" && thinking != "off" && thinking != "auto") {
    fail(ErrorCode::kInvalidArgument, "thinking is \"{}\", expected on, off or auto", thinking);
  }
  // Refuses an effort that every request would be refused for.
  render_chat(R"([{"role":"user","content":""}])", {.effort = effort});
  if (!is_metric_prefix(metrics_prefix)) {
    fail(ErrorCode::kInvalidArgument,
         "metrics_prefix is \"{}\", expected letters, digits, '_' and ':', no digit first",
         metrics_prefix);
  }
  if (!std::ranges::all_of(cors_origin, [](char c) { return c > ' ' && c < 0x7f; })) {
    fail(ErrorCode::kInvalidArgument,
         "cors_origin is \"{}\", expected * or an origin such as https://example.org", cors_origin);
  }
}

Service::Service(Engine& engine, ServiceOptions options)
    : engine_(engine),
      options_(std::move(options)),
      model_(engine.model_info()),
      fingerprint_(engine.system_fingerprint()),
      created_s_(std::time(nullptr)) {
  options_.validate();
  context_.tokenizer = engine.tokenizer();
  context_.vocab_size = model_.vocab_size;
  context_.thinking = options_.thinking == "on" ||
                      (options_.thinking == "auto" && knows_reasoning(context_.tokenizer));
  context_.effort = options_.effort;
  if (context_.tokenizer != nullptr) end_think_ = context_.tokenizer->added_token("</think>");
}

Reply Service::error_reply(const ApiError& error) const {
  Reply reply{.status = error.status(), .body = error_json(error)};
  if (error.status() == 401) reply.headers.emplace_back("WWW-Authenticate", "Bearer");
  if (error.status() == 503) reply.headers.emplace_back("Retry-After", "1");
  return reply;
}

std::optional<Reply> Service::refuse(const HttpRequest& head) const {
  const Route* const get = get_route(head.path);
  // A browser asks without credentials whether it may ask; the answer says nothing but that.
  const bool preflight = head.method == "OPTIONS" && !options_.cors_origin.empty();
  const bool open =
      preflight || (get != nullptr && get->open) || (head.path == "/" && options_.open_page);
  const bool accepted = head.num_authorizations == 1 && options_.keys.accept(head.authorization);
  if (!options_.keys.empty() && !open && !accepted) {
    return error_reply(ApiError(401,
                                "expected the header \"Authorization: Bearer KEY\" with a "
                                "valid API key",
                                {}, "invalid_api_key"));
  }
  const bool known_get = get != nullptr || is_model_route(head.path);
  const bool known_post = post_route(head.path).has_value();
  if (!known_get && !known_post) {
    return error_reply(
        ApiError(404, fmt::format("there is no route {} {}", head.method.substr(0, 20),
                                  replace_invalid_utf8(head.path.substr(0, 200)))));
  }
  const bool reads = head.method == "GET" || head.method == "HEAD";
  if (preflight || (known_get && reads) || (known_post && head.method == "POST")) return {};
  Reply reply = error_reply(ApiError(
      405, fmt::format("{} takes {}", head.path.substr(0, 200), known_get ? "GET" : "POST")));
  reply.headers.emplace_back("Allow", known_get ? "GET, HEAD" : "POST");
  return reply;
}

Reply Service::handle(const HttpRequest& request, Clock::time_point arrival,
                      const Metrics& metrics) {
  try {
    if (request.method == "OPTIONS") {
      Reply reply{.status = 204};
      reply.headers = {{"Access-Control-Allow-Methods", "GET, POST, OPTIONS"},
                       {"Access-Control-Allow-Headers", "Authorization, Content-Type"},
                       {"Access-Control-Max-Age", "600"}};
      return reply;
    }
    if (request.method == "POST") {
      return post(post_route(request.path).value(), request, arrival);
    }
    return get(request, metrics);
  } catch (const ApiError& error) {
    return error_reply(error);
  } catch (const Error& error) {
    return error_reply(to_api_error(error));
  } catch (const std::bad_alloc&) {
    return error_reply(ApiError(503, "the server has no memory left for this request"));
  } catch (const std::exception& error) {
    log(LogLevel::kError, "{} {}: {}", request.method, request.path, error.what());
    return error_reply(ApiError(500, "a fault of the server, which its log describes"));
  }
}

Reply Service::get(const HttpRequest& request, const Metrics& metrics) const {
  const std::string& path = request.path;
  if (path == "/") {
    return {.content_type = "text/html; charset=utf-8", .body = std::string(chat_page())};
  }
  if (path == "/health" || path == "/ping") return {.body = R"({"status":"ok"})"};
  if (path == "/ready") {
    if (draining_) throw ApiError(503, "the server stops");
    return {.body = R"({"status":"ready"})"};
  }
  if (path == "/metrics") {
    return {.content_type = "text/plain; version=0.0.4; charset=utf-8",
            .body = metrics_text(metrics, engine_.stats(), options_.metrics_prefix,
                                 options_.model_name)};
  }
  if (path == "/v1/models") return {.body = R"({"object":"list","data":[)" + models_json() + "]}"};
  const std::string_view name =
      std::string_view(path).substr(std::string_view("/v1/models/").size());
  if (name != options_.model_name) {
    throw ApiError(404,
                   fmt::format("there is no model {}, only {}",
                               text::quote_json(replace_invalid_utf8(name.substr(0, 200))),
                               options_.model_name),
                   "model", "model_not_found");
  }
  return {.body = models_json()};
}

std::string Service::models_json() const {
  std::string json = R"({"id":)";
  append_string(json, options_.model_name);
  json +=
      fmt::format(R"(,"object":"model","created":{},"owned_by":"deepinfer","max_model_len":{}}})",
                  created_s_, model_.max_model_len);
  return json;
}

Reply Service::post(Api api, const HttpRequest& request, Clock::time_point arrival) {
  const ApiRequest parsed = parse_request(api, request.body, options_.limits);
  check_model(parsed);
  switch (api) {
    case Api::kTokenize:
      return tokenize(parsed);
    case Api::kDetokenize:
      return detokenize(parsed);
    case Api::kChat:
    case Api::kCompletions:
    case Api::kResponses:
      break;
  }
  return generate(parsed, arrival);
}

void Service::check_model(const ApiRequest& request) const {
  if (request.model.empty() || request.model == options_.model_name) return;
  throw ApiError(404,
                 fmt::format("the model {} is not served here, but {}",
                             text::quote_json(replace_invalid_utf8(request.model.substr(0, 200))),
                             options_.model_name),
                 "model", "model_not_found");
}

Reply Service::tokenize(const ApiRequest& request) const {
  const std::vector<EncodedPrompt> prompts = encode_prompts(request, context_);
  if (prompts.size() != 1) throw ApiError(400, "prompt is a list, expected one text", "prompt");
  return {.body =
              fmt::format(R"({{"tokens":{},"count":{},"max_model_len":{}}})",
                          ids_json(prompts[0].ids), prompts[0].ids.size(), model_.max_model_len)};
}

Reply Service::detokenize(const ApiRequest& request) const {
  if (context_.tokenizer == nullptr) {
    throw ApiError(400, "the served model has no tokenizer.json", "tokens");
  }
  try {
    std::string json = R"({"text":)";
    append_string(json, context_.tokenizer->decode(request.tokens.value()));
    return {.body = json + "}"};
  } catch (const Error& error) {
    throw ApiError(http_status(error.code()), error.what(), "tokens");
  }
}

void Service::set_max_tokens(const ApiRequest& request, int64_t prompt_tokens,
                             SamplingParams& sampling) const {
  const int64_t left = model_.max_model_len - prompt_tokens;
  const char* const param = request.api == Api::kCompletions ? "prompt"
                            : request.api == Api::kResponses ? "input"
                                                             : "messages";
  if (left < 1) {
    throw ApiError(
        400,
        fmt::format("the prompt has {} tokens, expected at most {}: the context holds {}",
                    prompt_tokens, model_.max_model_len - 1, model_.max_model_len),
        param, "context_length_exceeded");
  }
  if (request.max_tokens && *request.max_tokens > left) {
    throw ApiError(400,
                   fmt::format("{} is {}, expected at most {}: the prompt has {} tokens and the "
                               "context holds {}",
                               request.max_tokens_field, *request.max_tokens, left, prompt_tokens,
                               model_.max_model_len),
                   request.max_tokens_field, "context_length_exceeded");
  }
  const int64_t fallback =
      request.api == Api::kCompletions ? std::min(kDefaultCompletionTokens, left) : left;
  sampling.max_tokens = request.max_tokens.value_or(fallback);
}

std::shared_ptr<void> Service::admit(int64_t choices) {
  if (draining_) throw ApiError(503, "the server stops and takes no more requests");
  const int64_t before = active_->fetch_add(choices, std::memory_order_relaxed);
  std::shared_ptr<void> ticket(nullptr, [active = active_, choices](void*) {
    active->fetch_sub(choices, std::memory_order_relaxed);
  });
  if (before + choices > options_.max_requests) {
    throw ApiError(503, fmt::format("the server is full: {} requests wait or run", before));
  }
  return ticket;
}

Choice Service::start(const ApiRequest& request, const EncodedPrompt& prompt, int64_t index,
                      int64_t number, const std::string& tools) {
  Request submitted{.prompt = prompt.ids,
                    .sampling = request.sampling,
                    .priority = request.priority,
                    .cache_salt = request.cache_salt};
  set_max_tokens(request, static_cast<int64_t>(prompt.ids.size()), submitted.sampling);
  SamplingParams& sampling = submitted.sampling;
  if (sampling.seed) sampling.seed = choice_seed(*sampling.seed, number);
  ChoiceOptions options{.index = index,
                        .counts_cached = number == 0,
                        .tokenizer = context_.tokenizer,
                        .end_tokens = sampling.stop_token_ids,
                        .end_think = end_think_,
                        .tools_offered = request.tools_offered};
  if (sampling.ignore_eos) {
    options.ignored_token = model_.eos_token_id;
  } else {
    options.end_tokens.push_back(model_.eos_token_id);
  }
  if (request.wants_logprobs) sampling.logprobs = request.top_logprobs.value_or(0);
  sampling.validate(model_.vocab_size);  // before the engine does, which sees no stop strings
  if (request.api != Api::kCompletions) {
    // Stop strings end the content, and only the parser knows where that is.
    options.parser = ChatParserOptions{.in_reasoning = prompt.in_reasoning,
                                       .continues = prompt.continues,
                                       .stop = std::exchange(sampling.stop, {}),
                                       .tools = tools};
  }
  return Choice(engine_.submit(std::move(submitted)), std::move(options));
}

Reply Service::generate(const ApiRequest& request, Clock::time_point arrival) {
  if (request.echo && context_.tokenizer == nullptr) {
    throw ApiError(400, "echo needs a tokenizer.json in the model's folder", "echo");
  }
  const std::vector<EncodedPrompt> prompts = encode_prompts(request, context_);
  const std::string tools = offered_tools(request);
  const int64_t num_choices = static_cast<int64_t>(prompts.size()) * request.n;
  const std::shared_ptr<void> ticket = admit(num_choices);
  std::vector<Choice> choices;
  choices.reserve(static_cast<size_t>(num_choices));
  int64_t prompt_tokens = 0;
  WriterOptions writer{.head = {.created_s = std::time(nullptr),
                                .model = options_.model_name,
                                .fingerprint = fingerprint_},
                       .num_choices = num_choices,
                       .include_usage = request.include_usage,
                       .logprobs = request.wants_logprobs,
                       .tokenizer = context_.tokenizer,
                       .instructions = request.instructions,
                       .temperature = request.sampling.temperature,
                       .top_p = request.sampling.top_p};
  writer.head.id = make_id(request.api == Api::kChat          ? "chatcmpl-"
                           : request.api == Api::kCompletions ? "cmpl-"
                                                              : "resp_");
  try {
    for (const EncodedPrompt& prompt : prompts) {
      prompt_tokens += static_cast<int64_t>(prompt.ids.size());
      for (int64_t number = 0; number < request.n; ++number) {
        choices.push_back(
            start(request, prompt, static_cast<int64_t>(choices.size()), number, tools));
        if (request.echo) writer.echo.push_back(context_.tokenizer->decode(prompt.ids));
      }
    }
  } catch (const Error& error) {
    // The choices that were queued before are cancelled on the way out.
    throw to_api_error(error);
  }
  Reply reply;
  if (request.stream) reply.content_type = "text/event-stream; charset=utf-8";
  reply.generation = std::make_unique<Generation>(
      std::move(choices), make_writer(request.api, request.stream, std::move(writer)),
      request.stream, prompt_tokens, arrival);
  reply.generation->keep(ticket);
  return reply;
}

}  // namespace deepinfer::server
