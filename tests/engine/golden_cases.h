#pragma once

#include <filesystem>
#include <string>

/// Whole-model comparisons with golden values, on the public API. tests/data/README.md says where
/// the limits come from.
namespace deepinfer::testing {

/// The numerics, and for the released ones the backend: what "auto" picks, or the reference.
enum class Mode { kExact, kReleased, kReleasedReference };

/// Every tensor of a golden trace against the engine's own: median, 99th percentile and maximum of
/// the difference by the noise file, choices by its counts and by their margins.
void expect_trace(const std::filesystem::path& model, const std::filesystem::path& golden,
                  const std::filesystem::path& noise, Mode mode);

/// Logits, best tokens and the greedy continuation of a text.
void expect_text(const std::filesystem::path& model, const std::filesystem::path& golden,
                 Mode mode);

}  // namespace deepinfer::testing
