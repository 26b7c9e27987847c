#include <cstdlib>
#include <string_view>

#include "server/api_error.h"
#include "server/api_request.h"
#include "tests/fuzz/fuzz.h"

/// The first byte chooses the route, the rest is the body of a request.
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using deepinfer::server::Api;
  if (size == 0) return 0;
  const std::string_view body(reinterpret_cast<const char*>(data + 1), size - 1);
  constexpr int kApis = 5;
  try {
    deepinfer::server::parse_request(static_cast<Api>(data[0] % kApis), body, {});
  } catch (const deepinfer::server::ApiError& error) {
    // Every refusal can be told: it is valid JSON about a status of the client's fault.
    if (error.status() < 400 || error.status() > 499) std::abort();
    deepinfer::server::error_json(error);
  }
  return 0;
}
