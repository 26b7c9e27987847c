#include <algorithm>
#include <utility>

#include "base/error.h"
#include "deepinfer/chat.h"
#include "text/completion_marks.h"
#include "text/json_value.h"
#include "text/prompt_builder.h"
#include "text/stop_matcher.h"
#include "text/tool_call_reader.h"
#include "text/utf8.h"

namespace deepinfer {

using text::kMarkBos;
using text::kMarkDsml;
using text::kMarkEndThink;
using text::kMarkEos;
using text::kMarkThink;

/// The parser is a state machine over symbols (bytes, and marks as bytes that UTF-8 lacks). Text
/// and tokens have their own ways in; what follows sees one sequence of symbols, one at a time, and
/// so cannot depend on how it was cut.
struct ChatParser::Impl {
  enum class State {
    kReasoning,
    kContent,
    kCalls,       // inside a block of calls, or what may be one
    kAfterCalls,  // strict: only the end may follow
    kVerbatim,    // strict: after a violation everything is content
    kEnded,
  };

  Impl(ChatParserOptions o, const Tokenizer* tokenizer);

  // The ways in.
  void push_text(std::string_view text);
  void push_token(int32_t id);
  void flush_input();
  void finish(bool natural);

  // The state machine.
  void put(char symbol);
  void put_mark(char mark);
  void put_text(char symbol);
  void put_strict_text(char symbol);
  void put_lenient_text(char symbol);
  void begin_calls();
  void put_in_calls(char symbol);
  void break_calls(size_t raw_size);
  void end_reasoning();
  void end_completion(bool natural);
  void end_inside_calls();

  // The ways out.
  void emit(char symbol);
  void emit_text(std::string_view symbols);
  void emit_content(char byte);
  void emit_reasoning(std::string_view text);
  void flush_held();
  void release_reasoning();

  ChatParserOptions options;
  const Tokenizer* tokenizer;
  text::ToolSchemas schemas;
  text::ToolCallReader reader;
  text::StopMatcher stops;
  std::vector<std::pair<int32_t, char>> mark_ids;

  std::string input;        // bytes of a begun character
  text::MarkFinder finder;  // text only
  State state;
  State origin = State::kContent;  // what the block of calls interrupted
  bool block_has_calls = false;
  bool trims = false;        // lenient: newlines are dropped until other text comes
  bool after_calls = false;  // lenient: a block has ended, text would be unexpected
  bool has_text = false;     // the reasoning or content has begun
  std::string held;          // symbols that may lead a block of calls
  std::string reasoning;     // held back
  bool reasoning_released = false;
  bool is_malformed = false;
  bool is_ended = false;
  ChatDelta delta;
};

ChatParser::Impl::Impl(ChatParserOptions o, const Tokenizer* t)
    : options(std::move(o)),
      tokenizer(t),
      schemas(options.tools),
      reader(options.strict, schemas),
      stops(options.stop),
      state(options.in_reasoning ? State::kReasoning : State::kContent),
      trims(!options.strict && !options.continues) {
  if (tokenizer == nullptr) return;
  for (const char mark : {kMarkThink, kMarkEndThink, kMarkDsml, kMarkEos, kMarkBos}) {
    const std::optional<int32_t> id = tokenizer->added_token(text::spelling_of(mark));
    if (id) mark_ids.emplace_back(*id, mark);
  }
}

void ChatParser::Impl::push_text(std::string_view text) {
  input += text;
  for (const char symbol : finder.push(text::take_whole_characters(input))) put(symbol);
}

void ChatParser::Impl::push_token(int32_t id) {
  for (const char symbol : finder.finish()) put(symbol);  // text that came before
  for (const auto& [mark_id, mark] : mark_ids) {
    if (mark_id != id) continue;
    flush_input();
    put(mark);
    return;
  }
  input += tokenizer->token_bytes(id);
  for (const char symbol : text::take_whole_characters(input)) put(symbol);
}

void ChatParser::Impl::flush_input() {
  const std::string rest = replace_invalid_utf8(std::exchange(input, {}));
  for (const char symbol : rest) put(symbol);
}

void ChatParser::Impl::put(char symbol) {
  if (state == State::kEnded) return;
  if (text::is_mark(symbol) && symbol != kMarkDsml) {
    put_mark(symbol);
  } else if (state == State::kCalls) {
    put_in_calls(symbol);
  } else {
    put_text(symbol);
  }
}

void ChatParser::Impl::put_mark(char mark) {
  if (mark == kMarkEos) {
    end_completion(true);
    return;
  }
  if (state == State::kCalls) {
    put_in_calls(mark);
    return;
  }
  if (state == State::kReasoning && mark == kMarkEndThink) {
    end_reasoning();
    return;
  }
  if (!options.strict && mark == kMarkEndThink) {
    flush_held();
    is_malformed = true;
    return;  // a second end of the reasoning
  }
  if (!options.strict && mark == kMarkThink && !has_text && held.empty() && !after_calls) {
    // The model begins its reasoning itself.
    if (state == State::kContent) is_malformed = true;
    state = State::kReasoning;
    return;
  }
  is_malformed = true;
  put_text(mark);
}

void ChatParser::Impl::end_reasoning() {
  // Lenient: the newlines in front of the mark are no part of the reasoning.
  if (!options.strict) held.erase(0, std::min(held.find_first_not_of('\n'), held.size()));
  flush_held();
  release_reasoning();
  state = State::kContent;
  has_text = false;
  trims = !options.strict;
}

void ChatParser::Impl::put_text(char symbol) {
  if (state == State::kAfterCalls) {
    is_malformed = true;
    state = State::kVerbatim;
  }
  if (state == State::kVerbatim) {
    emit(symbol);
  } else if (options.strict) {
    put_strict_text(symbol);
  } else {
    put_lenient_text(symbol);
  }
}

/// A block is announced by two newlines, '<' and the mark.
void ChatParser::Impl::put_strict_text(char symbol) {
  constexpr std::string_view kLead = "\n\n<";
  if (symbol == kMarkDsml && held == kLead) {
    begin_calls();
    return;
  }
  if (text::is_mark(symbol)) {
    is_malformed = true;
    flush_held();
    emit(symbol);
    return;
  }
  held.push_back(symbol);
  while (!kLead.starts_with(held)) {
    emit(held.front());
    held.erase(0, 1);
  }
}

/// A block is announced by any number of newlines, '<' and the mark.
void ChatParser::Impl::put_lenient_text(char symbol) {
  const bool less = !held.empty() && held.back() == '<';
  if (symbol == kMarkDsml && less) {
    begin_calls();
    return;
  }
  if (symbol == '\n' || symbol == '<') {
    if (less) flush_held();
    if (symbol == '\n' && trims) return;
    held.push_back(symbol);
    return;
  }
  if (symbol == kMarkDsml) is_malformed = true;
  flush_held();
  emit(symbol);
}

void ChatParser::Impl::begin_calls() {
  origin = state;
  state = State::kCalls;
  block_has_calls = false;
  held.pop_back();  // '<' is the reader's
  reader.begin(held);
  held.clear();
  reader.put('<');
  reader.put(kMarkDsml);
}

void ChatParser::Impl::put_in_calls(char symbol) {
  const text::ToolCallReader::Step step = reader.put(symbol);
  switch (step) {
    case text::ToolCallReader::Step::kMore:
      return;
    case text::ToolCallReader::Step::kCall:
      block_has_calls = true;
      delta.tool_calls.push_back(reader.take_call());
      break;
    case text::ToolCallReader::Step::kDone:
      break;
    case text::ToolCallReader::Step::kBroken: {
      // The symbol that broke the markup may begin something itself.
      break_calls(reader.raw().size() - 1);
      put(symbol);
      return;
    }
  }
  if (origin == State::kReasoning) {
    // Calls end the reasoning, although its mark should have come before.
    release_reasoning();
    is_malformed = true;
  }
  is_malformed |= reader.repaired();
  if (step == text::ToolCallReader::Step::kDone || reader.done()) {
    state = options.strict ? State::kAfterCalls : State::kContent;
    trims = after_calls = !options.strict;
  }
}

/// What looked like calls is text: of the reasoning that it was found in, else of the content.
void ChatParser::Impl::break_calls(size_t raw_size) {
  is_malformed = true;
  const std::string raw = reader.raw().substr(0, raw_size);
  if (options.strict || block_has_calls || origin != State::kReasoning) {
    if (origin == State::kReasoning) release_reasoning();
    state = options.strict ? State::kVerbatim : State::kContent;
  } else {
    state = State::kReasoning;
  }
  emit_text(raw);
}

void ChatParser::Impl::end_completion(bool natural) {
  if (state == State::kEnded) return;
  if (state == State::kCalls) end_inside_calls();
  flush_held();
  if (state == State::kReasoning) {
    // The mark that ends the reasoning never came. A whole answer without it is an answer; a text
    // that has been shown as reasoning stays that.
    is_malformed |= natural;
    if (natural && !reasoning_released) {
      state = State::kContent;
      for (const char byte : std::exchange(reasoning, {})) emit_content(byte);
    }
    release_reasoning();
  }
  if (!is_ended) stops.finish(delta.content);
  is_ended |= natural;
  state = State::kEnded;
}

void ChatParser::Impl::end_inside_calls() {
  if (!options.strict && reader.lacks_only_its_end()) {
    is_malformed = true;
    state = State::kContent;
  } else {
    break_calls(reader.raw().size());
  }
}

void ChatParser::Impl::finish(bool natural) {
  flush_input();
  for (const char symbol : finder.finish()) put(symbol);
  end_completion(natural);
}

void ChatParser::Impl::emit(char symbol) {
  has_text = true;
  trims = false;
  if (after_calls) is_malformed = true;
  const std::string_view text =
      text::is_mark(symbol) ? text::spelling_of(symbol) : std::string_view(&symbol, 1);
  if (state == State::kReasoning) {
    emit_reasoning(text);
  } else {
    for (const char byte : text) emit_content(byte);
  }
}

void ChatParser::Impl::emit_text(std::string_view symbols) {
  for (const char symbol : symbols) emit(symbol);
}

void ChatParser::Impl::emit_content(char byte) {
  if (state == State::kEnded || !stops.push(byte, delta.content)) return;
  state = State::kEnded;
  is_ended = true;
}

void ChatParser::Impl::emit_reasoning(std::string_view text) {
  if (reasoning_released) {
    delta.reasoning += text;
    return;
  }
  reasoning += text;
  if (static_cast<int64_t>(reasoning.size()) > options.reasoning_holdback_bytes) {
    release_reasoning();
  }
}

void ChatParser::Impl::release_reasoning() {
  delta.reasoning += std::exchange(reasoning, {});
  reasoning_released = true;
}

void ChatParser::Impl::flush_held() {
  emit_text(std::exchange(held, {}));
}

ChatParser::ChatParser(ChatParserOptions options, const Tokenizer* tokenizer)
    : impl_(std::make_unique<Impl>(std::move(options), tokenizer)) {}
ChatParser::ChatParser(ChatParser&&) noexcept = default;
ChatParser& ChatParser::operator=(ChatParser&&) noexcept = default;
ChatParser::~ChatParser() = default;

ChatDelta ChatParser::push(std::string_view text) {
  impl_->push_text(text);
  return std::exchange(impl_->delta, {});
}

ChatDelta ChatParser::push_token(int32_t id) {
  DEEPINFER_CHECK(impl_->tokenizer != nullptr, "ChatParser::push_token without a tokenizer");
  impl_->push_token(id);
  return std::exchange(impl_->delta, {});
}

ChatDelta ChatParser::finish(bool natural) {
  impl_->finish(natural);
  return std::exchange(impl_->delta, {});
}

bool ChatParser::ended() const {
  return impl_->is_ended;
}

bool ChatParser::malformed() const {
  return impl_->is_malformed;
}

void ChatDelta::append(ChatDelta delta) {
  reasoning += delta.reasoning;
  content += delta.content;
  for (ChatToolCall& call : delta.tool_calls) tool_calls.push_back(std::move(call));
}

std::string chat_message_json(const ChatDelta& message) {
  using text::JsonValue;
  JsonValue json = JsonValue::object();
  json.set("role", JsonValue::string("assistant"));
  json.set("content", JsonValue::string(message.content));
  json.set("reasoning_content", JsonValue::string(message.reasoning));
  JsonValue calls;
  calls.kind = JsonValue::Kind::kArray;
  for (const ChatToolCall& call : message.tool_calls) {
    JsonValue function = JsonValue::object();
    function.set("name", JsonValue::string(call.name));
    function.set("arguments", JsonValue::string(call.arguments));
    JsonValue entry = JsonValue::object();
    entry.set("type", JsonValue::string("function"));
    if (!call.name_space.empty()) entry.set("namespace", JsonValue::string(call.name_space));
    entry.set("function", std::move(function));
    calls.values.push_back(std::move(entry));
  }
  json.set("tool_calls", std::move(calls));
  return text::to_python_json(json);
}

}  // namespace deepinfer
