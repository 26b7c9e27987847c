#include "apps/engine_setup.h"

#include <utility>

#include "base/error.h"

namespace deepinfer::apps {
namespace {

constexpr int64_t kMaxGib = 1 << 20;

}  // namespace

void add_engine_flags(Flags& flags, EngineOptions& options) {
  flags.value(
      "--model", "DIR", [&options](const std::string& text) { options.model = text; },
      "Checkpoint folder in the released layout, or random weights: synth:PRESET[,layers=N]"
      "[,experts=N][,engram=small] (see deepinfer synth)");
  flags.require("--model");
  flags.text("--backend", "NAME", &options.backend,
             "cuda, cpu, reference, or auto (default auto: the fastest one that this machine has)");
  flags.value(
      "--device", "N",
      [&options](const std::string& text) {
        options.device = static_cast<int>(parse_integer("--device", text, 0, 1023));
      },
      "CUDA device (default 0; see deepinfer devices)");
  flags.text("--engram", "PLACE", &options.engram,
             "Where a CUDA device reads Engram tables: pinned (host memory), or file: the host "
             "gathers rows, and steps wait for it (default pinned). Never changes a result");
  flags.text("--cpu-level", "NAME", &options.cpu_level,
             "Instruction set of the cpu backend: avx512bf16, avx512, avx2, neon or portable "
             "(default: the best). Never changes a result");
  flags.value(
      "--threads", "N",
      [&options](const std::string& text) {
        options.threads = static_cast<int>(parse_integer("--threads", text, 0, 4096));
      },
      "Compute threads; 0: one per physical core (default 0). Never changes a result");
  flags.integer("--prefill-chunk", &options.prefill_chunk, 1,
                "Most rows that one step computes (default 512). Never changes a result");
  flags.integer("--max-batch", &options.max_batch, 1,
                "Most requests that run at once (default 16). Never changes a result");
  flags.integer("--max-model-len", &options.max_model_len, 0,
                "Most tokens of a request, prompt and output; 0: as many as fit (default 0)");
  flags.integer("--kv-tokens", &options.kv_tokens, 0,
                "Tokens of context kept for all requests together; 0: by --max-batch (default 0)");
  flags.text("--replay", "MODE", &options.replay,
             "exact, or bounded: layers above the last KV source see only the end of a prompt, "
             "which changes the tokens (default exact)");
  flags.integer("--keep-tokens", &options.keep_tokens, 1,
                "With --replay bounded: how many tokens that end has (default 140)");
  flags.integer("--snapshots", &options.snapshots, 0,
                "Places where a prompt that is sent again can start, 0: no reuse of window keys "
                "(default 64). Never changes a result");
  flags.value(
      "--cache-dir", "DIR", [&options](const std::string& text) { options.cache_dir = text; },
      "Keep what is cached of prompts in files there too: it survives a restart. Never changes a "
      "result");
  flags.value(
      "--cache-dir-gib", "N",
      [&options](const std::string& text) {
        options.cache_dir_bytes = parse_integer("--cache-dir-gib", text, 1, kMaxGib) << 30;
      },
      "Most GiB in --cache-dir (default 32)");
  flags.value(
      "--host-cache-gib", "N",
      [&options](const std::string& text) {
        options.host_cache_bytes = parse_integer("--host-cache-gib", text, 0, kMaxGib) << 30;
      },
      "GiB of host memory for what is cached of prompts beyond --kv-tokens (default 0). Never "
      "changes a result");
}

namespace {

const Tokenizer& tokenizer_of(const Engine& engine, std::string_view what) {
  const Tokenizer* tokenizer = engine.tokenizer();
  if (tokenizer == nullptr) {
    fail(ErrorCode::kInvalidArgument,
         "{} needs a tokenizer, and the model folder has no tokenizer.json; give token ids instead",
         what);
  }
  return *tokenizer;
}

}  // namespace

std::vector<int32_t> encode(const Engine& engine, std::string_view text, std::string_view what) {
  return tokenizer_of(engine, what).encode(text, SpecialTokens::kParse);
}

std::vector<int32_t> encode_messages(const Engine& engine, std::string_view messages,
                                     const ChatOptions& chat) {
  return encode_chat(tokenizer_of(engine, "a conversation"), render_chat(messages, chat));
}

std::vector<int32_t> take_tokens(Entry& entry, const Engine& engine, const ChatOptions& chat) {
  if (entry.tokens) return std::move(*entry.tokens);
  if (entry.messages_json) return encode_messages(engine, *entry.messages_json, chat);
  return encode(engine, *entry.text, "a text");
}

}  // namespace deepinfer::apps
