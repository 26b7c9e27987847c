// A safetensors file: accepted tensors must lie inside it.
#include <cstdint>
#include <cstdlib>
#include <span>

#include "base/error.h"
#include "checkpoint/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const auto file = std::as_bytes(std::span(data, size));
    int64_t end = 0;
    for (const auto& entry : deepinfer::checkpoint::parse_safetensors_header(file, "fuzz")) {
      if (entry.begin < 8 || entry.begin < end || entry.end < entry.begin) std::abort();
      end = entry.end;
    }
    if (end > static_cast<int64_t>(size)) std::abort();
  } catch (const deepinfer::Error& error) {
    if (error.code() == deepinfer::ErrorCode::kInternal) std::abort();
  }
  return 0;
}
