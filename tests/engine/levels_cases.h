#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "deepinfer/engine.h"

/// The cpu backend is one family of bits: whatever the instruction set, the threads, the chunks and
/// the batch, the logits are the same.
namespace deepinfer::testing {

std::unique_ptr<Engine> make_level_engine(const std::filesystem::path& model,
                                          const std::string& level, int threads, int64_t chunk);

/// Logits of a random prompt, and tokens and log-probabilities of a batch, at every level that the
/// processor has, with several numbers of threads and chunkings: all equal, bit for bit.
void expect_one_family(const std::filesystem::path& model, int64_t prompt_tokens);

}  // namespace deepinfer::testing
