// config.json: parsing, checking, and what is derived from an accepted configuration.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "checkpoint/config.h"
#include "checkpoint/names.h"

namespace {

using deepinfer::checkpoint::CheckOutcome;
using deepinfer::checkpoint::ModelConfig;

void try_config(std::string_view text) {
  const ModelConfig config = deepinfer::checkpoint::parse_config(text, "config.json");
  for (const auto& check : check_config(config)) {
    if (check.outcome == CheckOutcome::kFail) return;
  }
  // Hostile sizes must not overflow; the count is bounded so that one input stays fast.
  constexpr int64_t kMaxExperts = 1000;
  if (config.num_layers * config.num_experts + 8 * config.dspark_num_experts > kMaxExperts) return;
  int64_t bytes = 0;
  for_each_tensor(config, [&bytes](const deepinfer::checkpoint::ExpectedTensor& tensor) {
    if (__builtin_add_overflow(bytes, tensor.num_bytes(), &bytes)) std::abort();
  });
  // What was accepted can be written and read back. Without YaRN its other numbers mean nothing and
  // are not written.
  if (config.rope_scaling.factor == 1) return;
  try {
    if (!(deepinfer::checkpoint::parse_config(to_json(config), "again") == config)) std::abort();
  } catch (const deepinfer::Error&) {
    std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    try_config({reinterpret_cast<const char*>(data), size});
  } catch (const deepinfer::Error& error) {
    if (error.code() == deepinfer::ErrorCode::kInternal) std::abort();
  }
  return 0;
}
