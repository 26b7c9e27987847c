#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "base/error.h"

/// libFuzzer's entry point: called once per input.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace deepinfer::fuzz {

/// Runs `body`, in which input may be refused; an internal error counts as a crash.
template <typename Body>
void may_refuse(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kInternal) std::abort();
  }
}

}  // namespace deepinfer::fuzz
