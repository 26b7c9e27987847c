#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "deepinfer/engine.h"
#include "model/forward.h"
#include "ops/backend.h"
#include "scheduler/scheduler.h"

/// What options and checkpoint make of an engine, checked before anything large is allocated. All
/// errors are Errors that name the option or the file.
namespace deepinfer::engine {

/// Nothing if the folder has no tokenizer.json. Errors: kInvalidFile.
std::optional<Tokenizer> load_tokenizer(const std::filesystem::path& directory,
                                        const checkpoint::ModelConfig& config);

/// Engram's compressed id of every token: from engram_token_map.json if the folder has it, else
/// from the tokenizer; empty without Engram. Errors: kNotFound, kInvalidFile.
std::vector<int32_t> load_token_map(const checkpoint::Checkpoint& checkpoint,
                                    const Tokenizer* tokenizer);

/// What the options and the model leave of pool and context, in tokens.
struct ContextLimits {
  int64_t kv_tokens;  // a multiple of the page size
  int64_t max_model_len;
};
/// Errors: kInvalidArgument; kResourceExhausted when the host shall hold the caches and cannot.
ContextLimits context_limits(const EngineOptions& options, const checkpoint::ModelConfig& config);

/// What the options name, or the fastest that this machine has. Errors: kUnsupported and
/// kResourceExhausted of a device that cannot be used or is too small, naming what to lower.
std::unique_ptr<ops::Backend> make_backend(const EngineOptions& options,
                                           const checkpoint::ModelConfig& config,
                                           const ContextLimits& context, ThreadPool& pool);

/// Units of ring snapshots (cache::SnapshotPool): two for each.
int64_t snapshot_units(const EngineOptions& options);
scheduler::Limits scheduler_limits(const EngineOptions& options,
                                   const checkpoint::ModelConfig& config);
model::StepLimits step_limits(const scheduler::Limits& limits);
/// Errors: kInvalidArgument.
cache::RestartRules restart_rules(const EngineOptions& options,
                                  const checkpoint::ModelConfig& config);

/// Checks what a request asks for beside its tokens. Errors: kInvalidArgument.
void check_request(const Request& request, int64_t vocab_size, bool has_tokenizer);

}  // namespace deepinfer::engine
