#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>

#include "apps/chat_flags.h"
#include "apps/cli.h"
#include "apps/commands.h"
#include "apps/engine_setup.h"
#include "apps/generate_batch.h"
#include "apps/interruption.h"
#include "apps/line_reader.h"
#include "apps/output.h"
#include "apps/records.h"
#include "base/error.h"

namespace deepinfer::apps {
namespace {

constexpr int64_t kDefaultMaxTokens = 128;
constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();

struct GenerateFlags {
  EngineOptions engine;
  SamplingParams sampling;
  ChatFlags chat_flags;
  ChatOptions chat;
  std::optional<std::string> prompt;
  std::optional<std::string> messages;  // JSON
  std::optional<std::string> tokens;
  std::optional<std::string> input;
  std::optional<std::string> output;
  bool json = false;
};

void add_sampling_flags(Flags& flags, SamplingParams& sampling) {
  const auto number = [&flags](const std::string& name, float& target, const std::string& help) {
    flags.value(
        name, "X", [&target, name](const std::string& text) { target = parse_number(name, text); },
        fmt::format("{} (default {})", help, target));
  };
  const auto integer = [&flags](const std::string& name, auto& target, int64_t min,
                                const std::string& help) {
    flags.value(
        name, "N",
        [&target, name, min](const std::string& text) {
          target = static_cast<int32_t>(parse_integer(name, text, min, kMaxInt32));
        },
        help);
  };
  sampling.max_tokens = kDefaultMaxTokens;
  integer("--max-tokens", sampling.max_tokens, 1,
          fmt::format("Most tokens to generate (default {})", kDefaultMaxTokens));
  number("--temperature", sampling.temperature, "0: always the most likely token");
  number("--top-p", sampling.top_p, "Draw from the likeliest tokens of this total probability");
  integer("--top-k", sampling.top_k, 0, "Draw from the N likeliest tokens; 0: all (default 0)");
  number("--min-p", sampling.min_p,
         "Draw from tokens of at least this part of the best one's probability");
  number("--repetition-penalty", sampling.repetition_penalty,
         "Above 1: less of the tokens that prompt or output hold");
  number("--frequency-penalty", sampling.frequency_penalty,
         "Taken off a token's logit per occurrence in the output");
  number("--presence-penalty", sampling.presence_penalty,
         "Taken off the logit of the tokens in the output");
  flags.value(
      "--seed", "N",
      [&sampling](const std::string& text) { sampling.seed = parse_unsigned("--seed", text); },
      "Seed of the draws: the same seed, the same text (default: a new one per request)");
  flags.repeated("--stop", "TEXT", &sampling.stop,
                 "End before this text; may be given several times");
  flags.toggle("--ignore-eos", &sampling.ignore_eos, "Never end at the end token");
  integer("--logprobs", sampling.logprobs, 0,
          "With --json or --input: the log-probability of each token and of the N likeliest");
}

/// Prints the text of one request as it comes; the ids, separated by commas, without a tokenizer.
class StreamPrinter {
 public:
  StreamPrinter(Output& output, bool ids) : output_(output), ids_(ids) {}

  void print(const OutputDelta& delta) {
    std::string text = ids_ ? "" : delta.text;
    if (ids_) {
      for (const GeneratedToken& token : delta.tokens)
        text += fmt::format("{}{}", std::exchange(begun_, true) ? "," : "", token.id);
    }
    if (!text.empty()) output_.write(text);
  }

 private:
  Output& output_;
  bool ids_;
  bool begun_ = false;
};

/// Runs one request and returns what it made; prints it on the way unless it becomes a record.
Completion run_stream(OutputStream& stream, StreamPrinter* printer, Interruption& interruption) {
  Completion completion;
  interruption.watch(&stream);
  while (std::optional<OutputDelta> delta = stream.next()) {
    if (printer != nullptr) printer->print(*delta);
    completion.text += delta->text;
    completion.tokens.insert(completion.tokens.end(), delta->tokens.begin(), delta->tokens.end());
    completion.finish_reason = delta->finish_reason;
    completion.error = delta->error;
    completion.error_code = delta->error_code;
    if (delta->finish_reason != FinishReason::kNone) break;
  }
  interruption.watch(nullptr);
  return completion;
}

int generate_one(const GenerateFlags& flags, Engine& engine, Output& output) {
  std::vector<int32_t> prompt = flags.tokens ? parse_token_ids("--tokens", *flags.tokens)
                                : flags.messages
                                    ? encode_messages(engine, *flags.messages, flags.chat)
                                    : encode(engine, *flags.prompt, "--prompt");
  const auto prompt_tokens = static_cast<int64_t>(prompt.size());
  Interruption interruption;
  OutputStream stream = engine.submit({std::move(prompt), flags.sampling});
  output.truncate();
  StreamPrinter printer(output, engine.tokenizer() == nullptr);
  const Completion completion = run_stream(stream, flags.json ? nullptr : &printer, interruption);
  if (completion.finish_reason == FinishReason::kCancelled) {
    if (!flags.json) output.write("\n");
    return interruption.exit_code();
  }
  if (flags.json) {
    output.write(to_json_line({.completion = &completion,
                               .prompt_tokens = prompt_tokens,
                               .logprobs = flags.sampling.logprobs.has_value(),
                               .system_fingerprint = engine.system_fingerprint()}));
  } else {
    output.write("\n");
  }
  if (completion.finish_reason == FinishReason::kError) {
    fail(completion.error_code, "{}", completion.error);
  }
  return 0;
}

int generate_file(const GenerateFlags& flags, LineReader& input, Engine& engine, Output& output) {
  Interruption interruption;
  output.truncate();
  const GenerateBatch::Limits limits = {
      .requests = std::max(GenerateBatch::Limits().requests, 4 * flags.engine.max_batch)};
  GenerateBatch batch(engine, input, output, flags.sampling, flags.chat, limits, interruption);
  batch.run();
  if (interruption.requested()) {
    fmt::print(stderr, "deepinfer: interrupted after {} records\n", batch.num_records());
    return interruption.exit_code();
  }
  if (batch.num_errors() > 0) {
    fmt::print(stderr, "deepinfer: {} of {} records hold an error\n", batch.num_errors(),
               batch.num_records());
  }
  return 0;
}

}  // namespace

int generate(std::span<const std::string> arguments) {
  Flags parser("generate",
               "Continues a prompt, printing the text as it comes, or a file of prompts. The text "
               "is taken as it\nis: no token is put in front, and spellings of special tokens "
               "become those tokens; with --chat and --messages, the prompt of the conversation. "
               "Sampling flags hold for the lines of a file that do not say "
               "otherwise.");
  GenerateFlags flags;
  add_engine_flags(parser, flags.engine);
  parser.text("--prompt", "TEXT", &flags.prompt, "Text to continue");
  parser.text("--tokens", "1,2,3", &flags.tokens, "Token ids to continue; needs no tokenizer.json");
  parser.file("--input", "FILE", &flags.input,
              "Requests as JSON lines: {\"id\", \"prompt\" or \"tokens\" or \"messages\", sampling "
              "fields by their API names}; - is standard input");
  std::optional<std::string> chat_text;
  std::optional<std::string> messages_file;
  parser.text("--chat", "TEXT", &chat_text, "What a user says in a new conversation");
  parser.file("--messages", "FILE", &messages_file,
              "JSON list of messages to answer; - is standard input");
  parser.one_of({"--prompt", "--tokens", "--chat", "--messages", "--input"});
  parser.file("--output", "FILE", &flags.output, "Results; standard output if missing");
  parser.toggle("--json", &flags.json, "Print one record, as for --input, instead of the text");
  add_chat_flags(parser, flags.chat_flags);
  add_sampling_flags(parser, flags.sampling);
  if (!parser.parse(arguments)) return 0;
  flags.sampling.validate();
  if (flags.sampling.logprobs && !flags.json && !flags.input) {
    fail(ErrorCode::kInvalidArgument,
         "--logprobs: only records hold log-probabilities; add --json or use --input");
  }

  if (!chat_text && !messages_file && !flags.input) {
    refuse_chat_flags(parser, "--chat, --messages or --input");
  }
  // Whatever can be refused is refused before the model is loaded.
  if (flags.tokens) parse_token_ids("--tokens", *flags.tokens);
  flags.chat = chat_options(flags.chat_flags);
  if (messages_file) flags.messages = read_text(*messages_file);
  if (chat_text) {
    flags.messages = fmt::format(R"([{{"role":"user","content":{}}}])", json_string(*chat_text));
  }
  if (flags.messages) render_chat(*flags.messages, flags.chat);
  std::optional<LineReader> input;
  if (flags.input) input.emplace(*flags.input);
  Output output(flags.output);
  if (input) output.check_differs_from(*input);
  flags.engine.show_progress = true;
  const std::unique_ptr<Engine> engine = Engine::create(flags.engine);
  return input ? generate_file(flags, *input, *engine, output)
               : generate_one(flags, *engine, output);
}

}  // namespace deepinfer::apps
