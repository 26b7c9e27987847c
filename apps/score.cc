#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <iterator>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "apps/cli.h"
#include "apps/commands.h"
#include "apps/engine_setup.h"
#include "apps/interruption.h"
#include "apps/json_input.h"
#include "apps/line_reader.h"
#include "apps/output.h"
#include "apps/records.h"
#include "base/error.h"
#include "base/progress.h"
#include "deepinfer/safetensors.h"

namespace deepinfer::apps {
namespace {

struct ScoreFlags {
  EngineOptions engine;
  std::string input;
  std::optional<std::string> output;
  std::optional<std::string> logits;
  std::optional<std::string> dump;
};

/// A line of the input with its token ids, or its error.
struct ScoreEntry {
  std::string id_json;
  std::string id_text;
  std::string where;
  std::vector<int32_t> tokens = {};
  std::string error = {};
};

/// Reads lines and turns them into entries whose tokens the engine will take.
class EntryReader {
 public:
  EntryReader(LineReader& input, const Engine& engine, const Interruption& interruption)
      : input_(input), engine_(engine), interruption_(interruption) {}

  /// The next entry; nothing at the end or when interrupted.
  std::optional<ScoreEntry> next() {
    Line line;
    if (interruption_.requested() ||
        input_.next(line, true, interruption_.fd()) != LineReader::Status::kLine) {
      return std::nullopt;
    }
    Entry entry = parse_score_line(line, input_.name());
    ScoreEntry result = {.id_json = std::move(entry.id_json),
                         .id_text = std::move(entry.id_text),
                         .where = fmt::format("{} line {}", input_.name(), line.number),
                         .error = std::move(entry.error)};
    if (!result.error.empty()) return result;
    try {
      result.tokens = take_tokens(entry, engine_);
      check_tokens(result.tokens);
    } catch (const Error& error) {
      result.tokens.clear();
      result.error = fmt::format("{}: {}", result.where, error.what());
    }
    return result;
  }

 private:
  /// What score() would refuse, before anything is promised to a file of logits.
  void check_tokens(std::span<const int32_t> tokens) const {
    const ModelInfo info = engine_.model_info();
    if (tokens.empty()) fail(ErrorCode::kInvalidArgument, "there are no tokens to score");
    if (std::ssize(tokens) > info.max_model_len) {
      fail(ErrorCode::kInvalidArgument, "{} tokens are more than the {} that fit", tokens.size(),
           info.max_model_len);
    }
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (tokens[i] >= 0 && tokens[i] < info.vocab_size) continue;
      fail(ErrorCode::kInvalidArgument, "token {} at index {} is outside the vocabulary of {}",
           tokens[i], i, info.vocab_size);
    }
  }

  LineReader& input_;
  const Engine& engine_;
  const Interruption& interruption_;
};

/// Scores entries one after the other and writes their records; collects what the tensor files
/// need.
class Scorer {
 public:
  Scorer(const ScoreFlags& flags, Engine& engine, Output& output)
      : flags_(flags),
        engine_(engine),
        output_(output),
        fingerprint_(engine.system_fingerprint()) {}

  /// Declares the file of logits, one tensor per entry without an error.
  void open_logits(const std::vector<ScoreEntry>& entries) {
    std::vector<TensorEntry> tensors;
    for (const ScoreEntry& entry : entries) {
      if (!entry.error.empty()) continue;
      tensors.push_back({.name = entry.id_text,
                         .dtype = "F32",
                         .shape = {std::ssize(entry.tokens), engine_.model_info().vocab_size}});
    }
    logits_ = std::make_unique<TensorFile>(*flags_.logits, tensors);
  }

  void score(const ScoreEntry& entry, const std::string& trace_prefix) {
    ScoreResult result;
    std::string error = entry.error;
    if (error.empty()) {
      try {
        result = engine_.score(entry.tokens,
                               {.logits = logits_ != nullptr, .trace = flags_.dump.has_value()});
      } catch (const Error& refusal) {
        // A promised tensor that never comes would spoil the whole file.
        if (refusal.code() == ErrorCode::kInternal || logits_ != nullptr) throw;
        error = fmt::format("{}: {}", entry.where, refusal.what());
      }
    }
    if (logits_ != nullptr) logits_->write(std::as_bytes(std::span(result.logits)));
    for (TraceTensor& tensor : result.trace) {
      tensor.name.insert(0, trace_prefix);
      trace_.push_back(std::move(tensor));
    }
    output_.write(to_json_line({.id_json = entry.id_json,
                                .token_ids = entry.tokens,
                                .logprobs = result.logprobs,
                                .system_fingerprint = fingerprint_,
                                .error = error}));
    ++num_records_;
    num_tokens_ += std::ssize(entry.tokens);
    if (!error.empty()) ++num_errors_;
  }

  /// Writes what scoring every entry has completed.
  void commit() {
    if (logits_ != nullptr) logits_->commit();
    if (!flags_.dump) return;
    std::vector<TensorEntry> tensors;
    tensors.reserve(trace_.size());
    for (const TraceTensor& tensor : trace_)
      tensors.push_back({.name = tensor.name, .dtype = tensor.dtype, .shape = tensor.shape});
    TensorFile file(*flags_.dump, tensors);
    for (const size_t index : file.order()) file.write(trace_[index].data);
    file.commit();
  }

  int64_t num_records() const { return num_records_; }
  int64_t num_errors() const { return num_errors_; }
  int64_t num_tokens() const { return num_tokens_; }

 private:
  const ScoreFlags& flags_;
  Engine& engine_;
  Output& output_;
  std::string fingerprint_;
  std::unique_ptr<TensorFile> logits_;
  std::vector<TraceTensor> trace_;
  int64_t num_records_ = 0;
  int64_t num_errors_ = 0;
  int64_t num_tokens_ = 0;
};

/// Tensor names are made of the ids, so these must differ.
void check_unique(const std::vector<ScoreEntry>& entries, std::string_view flag) {
  std::set<std::string_view> seen;
  for (const ScoreEntry& entry : entries) {
    if (!entry.error.empty()) continue;
    if (!seen.insert(entry.id_text).second) {
      fail(ErrorCode::kInvalidArgument,
           "{}: id {} comes a second time; {} names tensors by id, so ids must differ", entry.where,
           entry.id_json, flag);
    }
  }
}

/// Shows how far scoring has come.
class ScoreProgress {
 public:
  ScoreProgress(const LineReader& input, const Output& output) {
    if (::isatty(STDERR_FILENO) == 0 || output.is_terminal()) return;
    if (const std::optional<int64_t> lines = input.count_lines())
      bar_.emplace("score", *lines, "entries");
  }
  void update(const Scorer& scorer) {
    if (!bar_) return;
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start_;
    bar_->update(
        scorer.num_records(),
        fmt::format("{:.1f} tokens/s", static_cast<double>(scorer.num_tokens()) / elapsed.count()));
  }

 private:
  std::optional<ProgressBar> bar_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// Scores one entry after the other as they are read; with tensor files, reads all of them first,
/// because the header of such a file comes before its content.
void score_entries(const ScoreFlags& flags, EntryReader& reader, Scorer& scorer,
                   ScoreProgress& progress, const Interruption& interruption) {
  if (!flags.logits && !flags.dump) {
    while (const std::optional<ScoreEntry> entry = reader.next()) {
      scorer.score(*entry, "");
      progress.update(scorer);
    }
    return;
  }
  std::vector<ScoreEntry> entries;
  while (std::optional<ScoreEntry> entry = reader.next()) entries.push_back(std::move(*entry));
  check_unique(entries, flags.logits ? "--logits" : "--dump");
  if (flags.logits) scorer.open_logits(entries);
  for (const ScoreEntry& entry : entries) {
    if (interruption.requested()) return;
    scorer.score(entry, entries.size() == 1 ? "" : entry.id_text + "/");
    progress.update(scorer);
  }
  if (!interruption.requested()) scorer.commit();
}

/// --logits and --dump replace what has their names, so they may name neither the input nor another
/// output.
void check_tensor_files(const ScoreFlags& flags) {
  std::vector<std::pair<std::string_view, std::string>> taken = {{"--input", flags.input}};
  if (flags.output) taken.emplace_back("--output", *flags.output);
  for (const auto& [flag, path] : {std::pair{"--logits", flags.logits}, {"--dump", flags.dump}}) {
    if (!path) continue;
    check_new_file(flag, *path);
    for (const auto& [other, name] : taken) {
      if (same_target(*path, name)) {
        fail(ErrorCode::kInvalidArgument, "{}: {} is the file of {} too", flag, *path, other);
      }
    }
    taken.emplace_back(flag, *path);
  }
}

}  // namespace

int score(std::span<const std::string> arguments) {
  Flags parser("score",
               "Reports the log-probability of every token of given texts, and their perplexity. "
               "Equal, bit for\nbit, to the log-probabilities that generate reports for the same "
               "tokens.");
  ScoreFlags flags;
  add_engine_flags(parser, flags.engine);
  parser.file("--input", "FILE", &flags.input,
              "JSON lines {\"id\", \"text\" or \"prompt\" or \"tokens\"}; - is standard input");
  parser.require("--input");
  parser.file("--output", "FILE", &flags.output, "Results; standard output if missing");
  parser.file("--logits", "FILE", &flags.logits,
              "Write the logits as safetensors: per entry F32 [tokens, vocabulary], named by id");
  parser.file("--dump", "FILE", &flags.dump,
              "Write the intermediates of every layer as safetensors, named as in the golden "
              "traces; ID/NAME if there are several entries");
  parser.text("--numerics", "NAME", &flags.engine.numerics,
              "engine, or exact: fp32 activations, on the reference backend (default engine)");
  if (!parser.parse(arguments)) return 0;

  check_tensor_files(flags);
  LineReader input(flags.input);
  Output output(flags.output);
  output.check_differs_from(input);
  flags.engine.show_progress = true;
  const std::unique_ptr<Engine> engine = Engine::create(flags.engine);
  output.truncate();
  Interruption interruption;
  EntryReader reader(input, *engine, interruption);
  Scorer scorer(flags, *engine, output);
  ScoreProgress progress(input, output);
  score_entries(flags, reader, scorer, progress, interruption);
  if (interruption.requested()) {
    fmt::print(stderr, "deepinfer: interrupted after {} records\n", scorer.num_records());
    return interruption.exit_code();
  }
  if (scorer.num_errors() > 0) {
    fmt::print(stderr, "deepinfer: {} of {} records hold an error\n", scorer.num_errors(),
               scorer.num_records());
  }
  return 0;
}

}  // namespace deepinfer::apps
