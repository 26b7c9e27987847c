#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "deepinfer/tokenizer.h"

namespace deepinfer {

/// A piece of a prompt.
struct PromptSegment {
  enum class Kind {
    kText,          ///< Plain text: spellings of added tokens in it stay text.
    kToken,         ///< One added token, by its spelling.
    kTokenIfKnown,  ///< One added token if the vocabulary has it, else text.
  };
  Kind kind = Kind::kText;
  std::string text = {};
};

/// A rendered conversation.
struct ChatPrompt {
  std::vector<PromptSegment> segments = {};
  std::vector<std::string> images =
      {};                     ///< The JSON of each image block, in the order of placeholders.
  bool in_reasoning = false;  ///< The model goes on inside <think>.
  bool continues = false;     ///< The model goes on inside the text of the last message.

  /// The prompt as one string.
  std::string text() const;
};

/// How a conversation becomes a prompt (spec/checkpoint.md §4).
struct ChatOptions {
  bool thinking = true;  ///< Thinking mode; else the answer follows at once.
  /// A name of `effort_levels`, or an integer 1 … 100; empty: `default_effort`. Thinking mode only,
  /// but always checked.
  std::string effort = {};
  std::vector<std::pair<std::string, int>> effort_levels = {
      {"low", 50}, {"high", 75}, {"max", 100}};
  std::string default_effort = "high";
  /// Leave out the reasoning of earlier turns, unless there are tools.
  bool drop_thinking = true;
  bool add_bos = true;  ///< Begin with the begin-of-sentence token, unless there is a context.
  /// The last message is an assistant's that the model continues: no end of sentence after it.
  bool continue_final_message = false;
  std::string tools = {};  ///< JSON list of tools for the first system message; empty: none.
  std::string response_format = {};  ///< JSON object for the first system message; empty: none.
  std::string context = {};  ///< JSON list of earlier messages, already in the cache; empty: none.
};

/// Renders a JSON list of messages. Errors name the message and the field ("messages[2].content"):
/// kInvalidArgument, or kInvalidFile if a JSON text is malformed.
ChatPrompt render_chat(std::string_view messages, const ChatOptions& options);

/// The ids of a prompt. Errors: kUnsupported naming an added token that the vocabulary lacks.
std::vector<int32_t> encode_chat(const Tokenizer& tokenizer, const ChatPrompt& prompt);

/// A call of a tool in a completion.
struct ChatToolCall {
  std::string name_space = {};  ///< Empty: none.
  std::string name = {};
  std::string arguments = {};  ///< The text of a JSON object.

  friend bool operator==(const ChatToolCall&, const ChatToolCall&) = default;
};

/// What a completion said, or what it said since the last delta.
struct ChatDelta {
  std::string reasoning = {};
  std::string content = {};
  std::vector<ChatToolCall> tool_calls = {};

  void append(ChatDelta delta);
  friend bool operator==(const ChatDelta&, const ChatDelta&) = default;
};

/// {"role": "assistant", "content", "reasoning_content", "tool_calls"} as JSON.
std::string chat_message_json(const ChatDelta& message);

struct ChatParserOptions {
  /// Read exactly what the released encoder writes. Else read what models write: other spacing,
  /// older tag names, missing ends; newlines around reasoning and calls are dropped.
  bool strict = false;
  bool in_reasoning = false;  ///< ChatPrompt::in_reasoning.
  bool continues = false;     ///< ChatPrompt::continues.
  /// Content ends where one of these begins.
  std::vector<std::string> stop = {};
  /// JSON list of the tools: decides the type of a parameter that says none itself. Empty: none.
  std::string tools = {};
  /// Reasoning is held back up to this many bytes: a completion that ends by itself within them,
  /// without having ended its reasoning, is an answer.
  int64_t reasoning_holdback_bytes = 512;
};

/// Reads a completion piece by piece. Concatenated, the deltas do not depend on how the completion
/// was cut, and each is valid UTF-8. Markup that is no tool call becomes text again; no text is
/// lost and no completion is an error. Used by one thread at a time.
class ChatParser {
 public:
  /// With a tokenizer, push_token() may be used; it must outlive the parser. Errors: kInvalidFile,
  /// kInvalidArgument (options.tools).
  explicit ChatParser(ChatParserOptions options, const Tokenizer* tokenizer = nullptr);
  ChatParser(ChatParser&&) noexcept;
  ChatParser& operator=(ChatParser&&) noexcept;
  ~ChatParser();

  /// More text, cut anywhere. Marks are found by their spelling.
  ChatDelta push(std::string_view text);
  /// The next token. Marks are found by their ids, so that text which spells them stays text.
  ChatDelta push_token(int32_t id);
  /// The end. `natural`: the model ended by itself (an end token, which may be left out, or a stop
  /// string), and was not cut off. Nothing may be pushed afterwards.
  ChatDelta finish(bool natural);

  /// The completion was ended by an end-of-sentence mark or a stop string; what follows is ignored.
  bool ended() const;
  /// Some markup was not what it should be and became text, or was taken to be what it looked like.
  bool malformed() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace deepinfer
