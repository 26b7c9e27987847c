#include "server/responses_writer.h"

#include <fmt/format.h>

#include <iterator>
#include <utility>

#include "server/json_out.h"

namespace deepinfer::server {
namespace {

/// The answer so far.
struct Answer {
  std::string reasoning_id = {};
  std::string message_id = {};
  std::string reasoning = {};
  std::string content = {};
  std::string finish_reason = {};

  std::string_view status() const { return finish_reason == "length" ? "incomplete" : "completed"; }
};

void append_reasoning_item(std::string& out, const Answer& answer) {
  out += R"({"id":")" + answer.reasoning_id +
         R"(","type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":)";
  append_string(out, answer.reasoning);
  out += "}]}";
}

void append_text_part(std::string& out, const std::string& text) {
  out += R"({"type":"output_text","annotations":[],"logprobs":[],"text":)";
  append_string(out, text);
  out += '}';
}

void append_message_item(std::string& out, const Answer& answer, std::string_view status) {
  fmt::format_to(std::back_inserter(out),
                 R"({{"id":"{}","type":"message","role":"assistant","status":"{}","content":[)",
                 answer.message_id, status);
  if (status != "in_progress") append_text_part(out, answer.content);
  out += "]}";
}

void append_response_usage(std::string& out, const Usage& usage) {
  fmt::format_to(std::back_inserter(out),
                 R"({{"input_tokens":{},"input_tokens_details":{{"cached_tokens":{}}},)"
                 R"("output_tokens":{},"output_tokens_details":{{"reasoning_tokens":{}}},)"
                 R"("total_tokens":{}}})",
                 usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens,
                 usage.reasoning_tokens, usage.prompt_tokens + usage.completion_tokens);
}

/// The object "response". `usage`: null while it is in progress.
void append_response(std::string& out, const WriterOptions& options, const Answer& answer,
                     std::string_view status, const Usage* usage) {
  fmt::format_to(std::back_inserter(out),
                 R"({{"id":"{}","object":"response","created_at":{},"status":"{}","error":null,)"
                 R"("incomplete_details":{},"instructions":)",
                 options.head.id, options.head.created_s, status,
                 status == "incomplete" ? R"({"reason":"max_output_tokens"})" : "null");
  if (options.instructions.empty()) {
    out += "null";
  } else {
    append_string(out, options.instructions);
  }
  out += R"(,"model":)";
  append_string(out, options.head.model);
  out += R"(,"system_fingerprint":)";
  append_string(out, options.head.fingerprint);
  out += R"(,"output":[)";
  if (usage != nullptr) {
    if (!answer.reasoning.empty()) {
      append_reasoning_item(out, answer);
      out += ',';
    }
    append_message_item(out, answer, status);
  }
  fmt::format_to(std::back_inserter(out),
                 R"(],"parallel_tool_calls":true,"temperature":{},"top_p":{},"tool_choice":"auto",)"
                 R"("tools":[],"metadata":{{}},"usage":)",
                 options.temperature, options.top_p);
  if (usage == nullptr) {
    out += "null";
  } else {
    append_response_usage(out, *usage);
  }
  out += '}';
}

class ResponsesBody final : public ResponseWriter {
 public:
  explicit ResponsesBody(WriterOptions options) : options_(std::move(options)) {
    answer_.reasoning_id = make_id("rs_");
    answer_.message_id = make_id("msg_");
  }

  void begin(std::string&) override {}
  void delta(const Choice&, ChoiceDelta delta, std::string&) override {
    answer_.reasoning += delta.message.reasoning;
    answer_.content += delta.message.content;
  }
  void finish(const Choice& choice, std::string&) override {
    answer_.finish_reason = choice.finish_reason();
  }
  void end(const Usage& usage, std::string& out) override {
    append_response(out, options_, answer_, answer_.status(), &usage);
  }
  void error(const ApiError&, std::string&) override {}

 private:
  WriterOptions options_;
  Answer answer_;
};

/// The events of OpenAI's API, each with its name and a running number.
class ResponsesEvents final : public ResponseWriter {
 public:
  explicit ResponsesEvents(WriterOptions options) : options_(std::move(options)) {
    answer_.reasoning_id = make_id("rs_");
    answer_.message_id = make_id("msg_");
  }

  void begin(std::string& out) override {
    for (const char* type : {"response.created", "response.in_progress"}) {
      open(type, out);
      out += R"(,"response":)";
      append_response(out, options_, answer_, "in_progress", nullptr);
      close(out);
    }
  }

  void delta(const Choice&, ChoiceDelta delta, std::string& out) override {
    if (!delta.message.reasoning.empty()) {
      if (answer_.reasoning.empty()) begin_reasoning(out);
      answer_.reasoning += delta.message.reasoning;
      open_part("response.reasoning_text.delta", answer_.reasoning_id, 0, out);
      out += R"(,"delta":)";
      append_string(out, delta.message.reasoning);
      close(out);
    }
    if (!delta.message.content.empty()) {
      begin_message(out);
      answer_.content += delta.message.content;
      open_part("response.output_text.delta", answer_.message_id, message_index(), out);
      out += R"(,"logprobs":[],"delta":)";
      append_string(out, delta.message.content);
      close(out);
    }
  }

  void finish(const Choice& choice, std::string& out) override {
    answer_.finish_reason = choice.finish_reason();
    if (choice.finish_reason() == "error") return;
    begin_message(out);
    open_part("response.output_text.done", answer_.message_id, message_index(), out);
    out += R"(,"logprobs":[],"text":)";
    append_string(out, answer_.content);
    close(out);
    open_part("response.content_part.done", answer_.message_id, message_index(), out);
    out += R"(,"part":)";
    append_text_part(out, answer_.content);
    close(out);
    open_item("response.output_item.done", message_index(), out);
    append_message_item(out, answer_, answer_.status());
    close(out);
  }

  void end(const Usage& usage, std::string& out) override {
    open(fmt::format("response.{}", answer_.status()), out);
    out += R"(,"response":)";
    append_response(out, options_, answer_, answer_.status(), &usage);
    close(out);
  }

  void error(const ApiError& error, std::string& out) override {
    open("error", out);
    out += R"(,"code":"server_error","param":null,"message":)";
    append_string(out, error.what());
    close(out);
  }

 private:
  void open(std::string_view type, std::string& out) {
    fmt::format_to(std::back_inserter(out),
                   "event: {0}\ndata: {{\"type\":\"{0}\",\"sequence_number\":{1}", type,
                   sequence_++);
  }
  void open_item(std::string_view type, int64_t index, std::string& out) {
    open(type, out);
    fmt::format_to(std::back_inserter(out), R"(,"output_index":{},"item":)", index);
  }
  void open_part(std::string_view type, const std::string& item, int64_t index, std::string& out) {
    open(type, out);
    fmt::format_to(std::back_inserter(out),
                   R"(,"item_id":"{}","output_index":{},"content_index":0)", item, index);
  }
  static void close(std::string& out) { out += "}\n\n"; }

  int64_t message_index() const { return answer_.reasoning.empty() ? 0 : 1; }

  void begin_reasoning(std::string& out) {
    open_item("response.output_item.added", 0, out);
    out += R"({"id":")" + answer_.reasoning_id + R"(","type":"reasoning","summary":[]})";
    close(out);
  }

  /// Ends the reasoning, if there is any, and begins the message, once.
  void begin_message(std::string& out) {
    if (message_begun_) return;
    message_begun_ = true;
    if (!answer_.reasoning.empty()) {
      open_part("response.reasoning_text.done", answer_.reasoning_id, 0, out);
      out += R"(,"text":)";
      append_string(out, answer_.reasoning);
      close(out);
      open_item("response.output_item.done", 0, out);
      append_reasoning_item(out, answer_);
      close(out);
    }
    open_item("response.output_item.added", message_index(), out);
    append_message_item(out, answer_, "in_progress");
    close(out);
    open_part("response.content_part.added", answer_.message_id, message_index(), out);
    out += R"(,"part":)";
    append_text_part(out, {});
    close(out);
  }

  WriterOptions options_;
  Answer answer_;
  int64_t sequence_ = 0;
  bool message_begun_ = false;
};

}  // namespace

std::unique_ptr<ResponseWriter> make_responses_writer(bool stream, WriterOptions options) {
  if (stream) return std::make_unique<ResponsesEvents>(std::move(options));
  return std::make_unique<ResponsesBody>(std::move(options));
}

}  // namespace deepinfer::server
