#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "deepinfer/engine.h"
#include "server/api_keys.h"
#include "server/api_request.h"
#include "server/generation.h"
#include "server/http_message.h"
#include "server/metrics.h"
#include "server/prompt.h"

namespace deepinfer::server {

/// How requests are served.
struct ServiceOptions {
  std::string model_name = {};  ///< What requests call the model.
  RequestLimits limits = {};
  int64_t max_requests = 4096;  ///< Most choices that wait or run at once.
  /// Reasoning for requests that do not say: "on", "off", "auto" (on if the vocabulary has the
  /// marks).
  std::string thinking = "auto";
  std::string effort = {};  ///< Of requests that do not say; empty: the encoder's default.
  std::string metrics_prefix = "deepinfer_";
  std::string cors_origin = {};  ///< "*" or an origin that may call from a browser; empty: none.
  bool open_page = false;        ///< The chat page needs no key.
  ApiKeys keys = {};

  /// Throws kInvalidArgument naming the field, its value and what is right.
  void validate() const;
};

/// An answer: a body, or one that a generation will make.
struct Reply {
  int status = 200;
  std::string_view content_type = "application/json";
  std::string body = {};
  std::vector<std::pair<std::string_view, std::string>> headers = {};
  std::unique_ptr<Generation> generation = {};
};

/// The routes: requests in, replies out; knows nothing of sockets. Any thread, apart from
/// `metrics`. `engine` must outlive it.
class Service {
 public:
  Service(Engine& engine, ServiceOptions options);

  /// Checks what can be checked before the body is read: key, route, method. Nothing: go on.
  std::optional<Reply> refuse(const HttpRequest& head) const;
  /// Answers a request that was not refused; never throws. Takes as long as its prompt's
  /// tokenizing does. `metrics`: owned by the calling thread, only read for /metrics.
  Reply handle(const HttpRequest& request, Clock::time_point arrival, const Metrics& metrics);
  /// Whether handle() may take long, so that it should not run on a thread that others wait for.
  static bool is_slow(const HttpRequest& request) { return request.method == "POST"; }

  /// From now on requests for generation are refused with 503 and /ready says so.
  void drain() { draining_ = true; }
  /// Answer with the headers that every answer has.
  Reply error_reply(const ApiError& error) const;
  const ServiceOptions& options() const { return options_; }
  /// Choices that wait or run.
  int64_t active() const { return active_->load(std::memory_order_relaxed); }

 private:
  Reply get(const HttpRequest& request, const Metrics& metrics) const;
  Reply post(Api api, const HttpRequest& request, Clock::time_point arrival);
  Reply generate(const ApiRequest& request, Clock::time_point arrival);
  Reply tokenize(const ApiRequest& request) const;
  Reply detokenize(const ApiRequest& request) const;
  std::string models_json() const;
  void check_model(const ApiRequest& request) const;
  /// Sets the most tokens of a prompt's answer. Errors: ApiError when both can never fit.
  void set_max_tokens(const ApiRequest& request, int64_t prompt_tokens,
                      SamplingParams& sampling) const;
  std::shared_ptr<void> admit(int64_t choices);
  Choice start(const ApiRequest& request, const EncodedPrompt& prompt, int64_t index,
               int64_t number, const std::string& tools);

  Engine& engine_;
  ServiceOptions options_;
  PromptContext context_;
  ModelInfo model_;
  std::string fingerprint_;
  int64_t created_s_;
  std::optional<int32_t> end_think_;
  // Relaxed throughout: a count and a flag that order nothing else.
  std::shared_ptr<std::atomic<int64_t>> active_ = std::make_shared<std::atomic<int64_t>>(0);
  std::atomic<bool> draining_ = false;
};

/// The chat page: one HTML document without references to others.
std::string_view chat_page();

}  // namespace deepinfer::server
