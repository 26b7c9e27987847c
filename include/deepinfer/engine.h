#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "deepinfer/error.h"
#include "deepinfer/sampling_params.h"
#include "deepinfer/tokenizer.h"

namespace deepinfer {

/// How to load a model and run it.
struct EngineOptions {
  std::filesystem::path model;   ///< Checkpoint directory in the released layout.
  std::string backend = "auto";  ///< "cuda", "cpu", "reference", or "auto": cuda where a device
                                 ///< can be used, else cpu.
  int device = 0;                ///< CUDA device, >= 0.
  std::string engram =
      "pinned";  ///< Where a CUDA device reads Engram tables: "pinned" host memory,
                 ///< or "file": the host gathers rows, and the step waits for it.
  std::string numerics =
      "engine";  ///< "engine", or "exact" (fp32 activations; the reference backend only).
  std::string cpu_level =
      {};           ///< Instruction set of the cpu backend: "avx512bf16", "avx512", "avx2",
                    ///< "neon", "portable"; "": the best one. All give the same bits.
  int threads = 0;  ///< Compute threads; 0: one per physical core.
  int64_t prefill_chunk = 512;  ///< Most prompt rows that one step computes, >= 1.
  int64_t max_batch = 16;       ///< Most requests that run at once, >= 1.
  int64_t max_model_len =
      0;  ///< Most tokens of a request, prompt and output; 0: what the model and the pool allow.
  int64_t kv_tokens = 0;  ///< Tokens of context that the page pool holds; 0: max_batch requests of
                          ///< 4,096 tokens, but at least one of max_model_len if that is given.
  std::string replay = "exact";  ///< "exact", or "bounded": the layers above the last KV source see
                                 ///< only the last keep_tokens of a prompt; other tokens, sooner.
  int64_t keep_tokens = 140;     ///< With bounded replay; at least the model's window.
  bool prefix_cache = true;      ///< Reuse what earlier requests left of equal prompts.
  int64_t snapshots = 64;        ///< Ring snapshots that the cache holds; 0: none.
  int64_t snapshot_interval = 2048;      ///< Prompt tokens between two of them, whole pages of 64.
  int64_t host_cache_bytes = 0;          ///< Pages and snapshots also kept in host memory; 0: none.
  std::filesystem::path cache_dir = {};  ///< Also kept in files there, for restarts; "": none.
  int64_t cache_dir_bytes = int64_t{32} << 30;  ///< Most bytes of those files.
  bool profile = false;  ///< Count what operations cost: Engine::operation_stats(). Never changes a
                         ///< result.
  bool show_progress = false;  ///< A progress bar on stderr when loading takes over a second.

  /// Throws kInvalidArgument naming the field, its value and the range.
  void validate() const;
};

/// A prompt to continue.
struct Request {
  static constexpr int32_t kMaxPriority = 100;
  static constexpr size_t kMaxCacheSaltBytes = 1024;

  std::vector<int32_t> prompt;  ///< Token ids, at least one, each in [0, vocab_size).
  SamplingParams sampling = {};
  int32_t priority = 0;  ///< In [-100, 100]; higher ones are served sooner. Nobody waits for ever.
  std::optional<std::string> cache_salt =
      {};  ///< Only requests of equal salts share what is cached of
           ///< their prompts. Text (UTF-8), not empty.
};

enum class FinishReason {
  kNone,       ///< Still running.
  kStop,       ///< An end token or a stop string.
  kLength,     ///< max_tokens or the context length.
  kCancelled,  ///< cancel() or the engine's end.
  kError,      ///< OutputDelta::error says what happened.
};
/// "stop", "length", "cancelled", "error"; "" while running.
const char* to_string(FinishReason reason) noexcept;

struct TokenLogprob {
  int32_t token = 0;
  float logprob = 0;
};

/// A generated token with its log-probability, of the logits before penalties, temperature and
/// filters.
struct GeneratedToken {
  int32_t id = 0;
  float logprob = 0;
  std::vector<TokenLogprob> top;  ///< SamplingParams::logprobs most likely tokens, best first.
};

/// What a request produced since the last delta.
struct OutputDelta {
  std::vector<GeneratedToken> tokens;
  std::string text;  ///< Whole characters; empty without a tokenizer. Never taken back.
  FinishReason finish_reason = FinishReason::kNone;
  std::string error;  ///< With kError: what happened, and its kind.
  ErrorCode error_code = ErrorCode::kInternal;
  int64_t cached_tokens = 0;  ///< As in Completion; in every delta.
};

/// The output of one request: used by one thread at a time. Destroying it cancels the request.
class OutputStream {
 public:
  struct State;
  explicit OutputStream(std::shared_ptr<State> state);
  OutputStream(OutputStream&&) noexcept;
  OutputStream& operator=(OutputStream&&) noexcept;
  ~OutputStream();

  /// Waits for the next delta. Nothing after the delta that carried a finish reason.
  std::optional<OutputDelta> next();
  /// Like next(), but returns at once; nothing if no delta is ready.
  std::optional<OutputDelta> poll();
  /// Ends the request; next() then returns one last delta with kCancelled, unless it had already
  /// finished. Any thread.
  void cancel();

 private:
  std::shared_ptr<State> state_;
};

/// A finished request.
struct Completion {
  std::string text;
  std::vector<GeneratedToken> tokens;
  FinishReason finish_reason = FinishReason::kNone;
  std::string error;  ///< With kError, as in OutputDelta.
  ErrorCode error_code = ErrorCode::kInternal;
  int64_t cached_tokens = 0;  ///< Prompt tokens that no layer computed, because an earlier request
                              ///< had left them in the cache.
};
/// Drains a stream.
Completion collect(OutputStream& stream);

/// A named intermediate of a forward pass: row-major, of the whole sequence.
struct TraceTensor {
  std::string name;   ///< As in the golden traces: "layers.3.attn_in".
  std::string dtype;  ///< safetensors spelling: "F32", "I32", "I64", "U8".
  std::vector<int64_t> shape;
  std::vector<std::byte> data;
};

struct ScoreOptions {
  bool logits = false;  ///< Return the logits of every position.
  bool trace =
      false;  ///< Return the per-layer intermediates. Needs memory per token; for short sequences.
};

struct ScoreResult {
  std::vector<float> logprobs;  ///< [tokens - 1]: log p(token i + 1 | tokens 0 … i).
  std::vector<float> logits;    ///< [tokens, vocab] row-major, if asked for.
  std::vector<TraceTensor> trace;
};

/// Counters of a running engine: what is now, and sums since its start.
struct EngineStats {
  int64_t waiting = 0;  ///< Requests in the queue.
  int64_t running = 0;

  int64_t steps = 0;
  int64_t rows = 0;  ///< Rows computed; replayed_rows of them only to rebuild rings.
  int64_t replayed_rows = 0;
  int64_t layer_rows = 0;       ///< Rows times the layers they ran through …
  int64_t full_layer_rows = 0;  ///< … and what that would be had each run through all.
  double step_seconds = 0;      ///< The device was busy so long.
  double plan_seconds = 0;      ///< Planning took so long, while the device was busy.

  int64_t preemptions = 0;
  int64_t failed_steps = 0;
  int64_t prompt_tokens = 0;  ///< Of all starts of requests, preempted ones again.
  int64_t cached_tokens = 0;  ///< Those of them that no layer computed.

  int64_t pages_total = 0;  ///< = free + cached + held.
  int64_t pages_free = 0;
  int64_t pages_cached = 0;  ///< Of no request, but known and ready for the next.
  int64_t pages_held = 0;    ///< Of requests.
  int64_t page_evictions = 0;
  int64_t snapshot_units_total = 0;  ///< Memory of ring snapshots, likewise.
  int64_t snapshot_units_free = 0;
  int64_t snapshot_units_cached = 0;
  int64_t snapshot_units_held = 0;

  int64_t loading = 0;              ///< Of those in the queue: waiting for pages from the tiers.
  int64_t tier_bytes = 0;           ///< In host memory and files together.
  int64_t tier_entries_loaded = 0;  ///< Pages and halves of snapshots brought back.
  int64_t tier_entries_stored = 0;
  int64_t tier_entries_dropped = 0;  ///< Not stored, because too much was waiting.
};

/// What the calls of one operation of the model cost since the start.
struct OperationStats {
  std::string name;  ///< "sparse_attention", …
  int64_t calls = 0;
  double seconds = 0;
  double bytes = 0;  ///< That must cross memory at least: weights touched, activations, caches.
  double operations = 0;  ///< Of products, attention and index scores: two per multiply-add.
};

/// What the machine can do at most, on the engine's threads.
struct MachineLimits {
  double read_bytes_per_second = 0;
  double operations_per_second = 0;
};

struct ModelInfo {
  int64_t vocab_size = 0;
  int64_t max_model_len = 0;
  int32_t bos_token_id = -1;  ///< -1: none.
  int32_t eos_token_id = -1;
};

/// A loaded model and the thread that steps it. All member functions may be called from any thread.
/// Tokens and log-probabilities of a request are a function of the checkpoint,
/// system_fingerprint(), the request's tokens, parameters and seed alone: not of other requests,
/// chunking, batch size or threads.
class Engine {
 public:
  /// Loads the model. Errors: kInvalidArgument (options), kNotFound, kInvalidFile (checkpoint),
  /// kResourceExhausted.
  static std::unique_ptr<Engine> create(const EngineOptions& options);
  virtual ~Engine() = default;

  /// Queues a request. Errors: kInvalidArgument (empty prompt, id out of range, bad parameters, a
  /// prompt that can never fit); nothing was queued then.
  virtual OutputStream submit(Request request) = 0;
  /// Log-probabilities of a given sequence of at least one token; waits for its turn. Equal, bit
  /// for bit, to those that generating the same tokens reports. Errors: as submit().
  virtual ScoreResult score(std::span<const int32_t> tokens, const ScoreOptions& options) = 0;

  /// Has `listener` called on the engine thread after every step and whenever a request has ended
  /// without one: then streams may have deltas, so that one reader can poll() many streams and be
  /// woken once per step. It must return soon, throw nothing and call nothing of the engine. Empty:
  /// none; once this returns, the previous listener runs no more.
  virtual void set_output_listener(std::function<void()> listener) = 0;

  /// Null when the checkpoint folder has no tokenizer.json: requests with token ids work without.
  virtual const Tokenizer* tokenizer() const = 0;
  virtual ModelInfo model_info() const = 0;
  virtual EngineStats stats() const = 0;
  /// One element per operation, in the order of a step; empty without EngineOptions::profile. Waits
  /// for the step that runs.
  virtual std::vector<OperationStats> operation_stats() = 0;
  /// Measures them, which takes about a second; requests wait.
  virtual MachineLimits measure_limits() = 0;
  /// Names checkpoint and numerics: equal fingerprints promise equal tokens.
  virtual std::string system_fingerprint() const = 0;
};

}  // namespace deepinfer
