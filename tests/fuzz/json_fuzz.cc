#include <nlohmann/json.hpp>
#include <string_view>

#include "base/json.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  deepinfer::fuzz::may_refuse([&] {
    // What was accepted must survive being written and read again.
    const deepinfer::Json value = deepinfer::parse_json(text, "input");
    if (deepinfer::parse_json(value.dump(), "output") != value) std::abort();
  });
  return 0;
}
