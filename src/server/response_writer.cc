#include "server/response_writer.h"

#include <fmt/format.h>

#include <atomic>
#include <iterator>
#include <random>
#include <utility>

#include "base/philox.h"
#include "server/json_out.h"
#include "server/responses_writer.h"

namespace deepinfer::server {
namespace {

void append_head(std::string& out, const ResponseHead& head, std::string_view object) {
  fmt::format_to(std::back_inserter(out), R"({{"id":"{}","object":"{}","created":{},"model":)",
                 head.id, object, head.created_s);
  append_string(out, head.model);
  out += R"(,"system_fingerprint":)";
  append_string(out, head.fingerprint);
}

/// A value per choice.
template <typename T>
class PerChoice {
 public:
  explicit PerChoice(int64_t num_choices) : values_(static_cast<size_t>(num_choices)) {}
  T& operator[](const Choice& choice) { return values_[static_cast<size_t>(choice.index())]; }
  std::vector<T>& all() { return values_; }

 private:
  std::vector<T> values_;
};

/// Events: `data: {…, "choices": [one choice]}`.
class EventsWriter : public ResponseWriter {
 public:
  EventsWriter(WriterOptions options, std::string_view object) : options_(std::move(options)) {
    head_ = "data: ";
    append_head(head_, options_.head, object);
    head_ += R"(,"choices":[)";
  }

  void begin(std::string&) override {}

  void end(const Usage& usage, std::string& out) override {
    if (options_.include_usage) {
      out += head_;
      out += R"(],"usage":)";
      append_usage(out, usage);
      out += "}\n\n";
    }
    out += "data: [DONE]\n\n";
  }

  void error(const ApiError& error, std::string& out) override {
    out += "data: " + error_json(error) + "\n\n";
  }

 protected:
  const WriterOptions& options() const { return options_; }

  /// The event up to the choice's index.
  void open(const Choice& choice, std::string& out) const {
    out += head_;
    out += R"({"index":)";
    append_integer(out, choice.index());
  }
  /// The rest of the event. `reason`: empty while the choice goes on.
  void close(std::string_view reason, std::string& out) const {
    out += R"(,"finish_reason":)";
    if (reason.empty()) {
      out += "null";
    } else {
      out += '"';
      out += reason;
      out += '"';
    }
    out += options_.include_usage ? "}],\"usage\":null}\n\n" : "}]}\n\n";
  }

 private:
  WriterOptions options_;
  std::string head_;
};

class ChatEvents final : public EventsWriter {
 public:
  explicit ChatEvents(WriterOptions options)
      : EventsWriter(std::move(options), "chat.completion.chunk"),
        begun_(this->options().num_choices),
        calls_(this->options().num_choices) {}

  void delta(const Choice& choice, ChoiceDelta delta, std::string& out) override {
    const ChatDelta& message = delta.message;
    const bool logprobs = options().logprobs && !delta.tokens.empty();
    if (message == ChatDelta() && !logprobs) return;
    begin_choice(choice, out);
    open(choice, out);
    out += R"(,"delta":{)";
    const char* between = "";
    append_member(R"("reasoning_content":)", message.reasoning, between, out);
    append_member(R"("content":)", message.content, between, out);
    if (!message.tool_calls.empty()) {
      out += between;
      out += R"("tool_calls":)";
      append_tool_calls(out, message.tool_calls, calls_[choice]);
      calls_[choice] += static_cast<int64_t>(message.tool_calls.size());
    }
    out += R"(},"logprobs":)";
    if (logprobs) {
      append_chat_logprobs(out, *options().tokenizer, delta.tokens);
    } else {
      out += "null";
    }
    close({}, out);
  }

  void finish(const Choice& choice, std::string& out) override {
    begin_choice(choice, out);
    open(choice, out);
    out += R"(,"delta":{},"logprobs":null)";
    close(choice.finish_reason(), out);
  }

 private:
  static void append_member(const char* name, const std::string& text, const char*& between,
                            std::string& out) {
    if (text.empty()) return;
    out += between;
    out += name;
    append_string(out, text);
    between = ",";
  }

  void begin_choice(const Choice& choice, std::string& out) {
    if (begun_[choice] != 0) return;
    begun_[choice] = 1;
    open(choice, out);
    out += R"(,"delta":{"role":"assistant","content":""},"logprobs":null)";
    close({}, out);
  }

  PerChoice<char> begun_;  // not bool: a vector of those has no references
  PerChoice<int64_t> calls_;
};

class CompletionEvents final : public EventsWriter {
 public:
  explicit CompletionEvents(WriterOptions options)
      : EventsWriter(std::move(options), "text_completion"),
        begun_(this->options().num_choices),
        offsets_(this->options().num_choices) {}

  void delta(const Choice& choice, ChoiceDelta delta, std::string& out) override {
    const bool logprobs = options().logprobs && !delta.tokens.empty();
    if (delta.message.content.empty() && !logprobs) return;
    echo(choice, out);
    write(choice, delta.message.content, logprobs ? delta.tokens : std::vector<GeneratedToken>(),
          {}, out);
  }

  void finish(const Choice& choice, std::string& out) override {
    echo(choice, out);
    write(choice, {}, {}, choice.finish_reason(), out);
  }

 private:
  /// The prompt, in an event of its own in front of the others.
  void echo(const Choice& choice, std::string& out) {
    if (options().echo.empty() || begun_[choice] != 0) return;
    begun_[choice] = 1;
    write(choice, options().echo[static_cast<size_t>(choice.index())], {}, {}, out);
  }

  void write(const Choice& choice, std::string_view text, std::span<const GeneratedToken> tokens,
             std::string_view reason, std::string& out) {
    open(choice, out);
    out += R"(,"text":)";
    append_string(out, text);
    out += R"(,"logprobs":)";
    if (tokens.empty()) {
      out += "null";
    } else {
      append_completion_logprobs(out, options().tokenizer, tokens, offsets_[choice]);
    }
    close(reason, out);
  }

  PerChoice<char> begun_;
  PerChoice<int64_t> offsets_;
};

/// One JSON object at the end.
class BodyWriter : public ResponseWriter {
 public:
  BodyWriter(WriterOptions options, std::string_view object)
      : options_(std::move(options)), object_(object), choices_(options_.num_choices) {}

  void begin(std::string&) override {}

  void delta(const Choice& choice, ChoiceDelta delta, std::string&) override {
    ChoiceDelta& whole = choices_[choice].delta;
    whole.message.append(std::move(delta.message));
    if (!options_.logprobs) return;
    for (GeneratedToken& token : delta.tokens) whole.tokens.push_back(std::move(token));
  }

  void finish(const Choice& choice, std::string&) override {
    choices_[choice].reason = choice.finish_reason();
  }

  void end(const Usage& usage, std::string& out) override {
    append_head(out, options_.head, object_);
    out += R"(,"choices":[)";
    for (size_t i = 0; i < choices_.all().size(); ++i) {
      if (i > 0) out += ',';
      out += R"({"index":)";
      append_integer(out, static_cast<int64_t>(i));
      append_choice(i, choices_.all()[i].delta, out);
      out += R"(,"finish_reason":")" + choices_.all()[i].reason + R"("})";
    }
    out += R"(],"usage":)";
    append_usage(out, usage);
    out += '}';
  }

  void error(const ApiError&, std::string&) override {}

 protected:
  const WriterOptions& options() const { return options_; }
  virtual void append_choice(size_t index, const ChoiceDelta& whole, std::string& out) const = 0;

 private:
  struct Whole {
    ChoiceDelta delta;
    std::string reason;
  };

  WriterOptions options_;
  std::string_view object_;
  PerChoice<Whole> choices_;
};

class ChatBody final : public BodyWriter {
 public:
  explicit ChatBody(WriterOptions options) : BodyWriter(std::move(options), "chat.completion") {}

 private:
  void append_choice(size_t, const ChoiceDelta& whole, std::string& out) const override {
    const ChatDelta& message = whole.message;
    out += R"(,"message":{"role":"assistant","content":)";
    // A message that only calls tools has no content.
    if (message.content.empty() && !message.tool_calls.empty()) {
      out += "null";
    } else {
      append_string(out, message.content);
    }
    if (!message.reasoning.empty()) {
      out += R"(,"reasoning_content":)";
      append_string(out, message.reasoning);
    }
    if (!message.tool_calls.empty()) {
      out += R"(,"tool_calls":)";
      append_tool_calls(out, message.tool_calls, -1);
    }
    out += R"(,"refusal":null},"logprobs":)";
    if (options().logprobs) {
      append_chat_logprobs(out, *options().tokenizer, whole.tokens);
    } else {
      out += "null";
    }
  }
};

class CompletionBody final : public BodyWriter {
 public:
  explicit CompletionBody(WriterOptions options)
      : BodyWriter(std::move(options), "text_completion") {}

 private:
  void append_choice(size_t index, const ChoiceDelta& whole, std::string& out) const override {
    out += R"(,"text":)";
    append_string(out, options().echo.empty() ? whole.message.content
                                              : options().echo[index] + whole.message.content);
    out += R"(,"logprobs":)";
    if (options().logprobs) {
      int64_t offset = 0;
      append_completion_logprobs(out, options().tokenizer, whole.tokens, offset);
    } else {
      out += "null";
    }
  }
};

}  // namespace

std::unique_ptr<ResponseWriter> make_writer(Api api, bool stream, WriterOptions options) {
  switch (api) {
    case Api::kChat:
      if (stream) return std::make_unique<ChatEvents>(std::move(options));
      return std::make_unique<ChatBody>(std::move(options));
    case Api::kResponses:
      return make_responses_writer(stream, std::move(options));
    case Api::kCompletions:
    case Api::kTokenize:
    case Api::kDetokenize:
      break;
  }
  if (stream) return std::make_unique<CompletionEvents>(std::move(options));
  return std::make_unique<CompletionBody>(std::move(options));
}

std::string make_id(std::string_view prefix) {
  // Relaxed: every caller needs another number, in whatever order.
  static std::atomic<uint64_t> next = [] {
    std::random_device device;
    return (uint64_t{device()} << 32) | device();
  }();
  const uint64_t number = next.fetch_add(1, std::memory_order_relaxed);
  return fmt::format("{}{:016x}{:08x}", prefix, mix64(number),
                     static_cast<uint32_t>(mix64(~number)));
}

}  // namespace deepinfer::server
