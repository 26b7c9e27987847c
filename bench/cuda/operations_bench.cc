// Every operation of ops/ at the released sizes on the first device: median time by graph replay,
// beside the bound max(bytes / read bandwidth, operations / bf16 peak, bytes over PCIe / its
// bandwidth) and cuBLASLt's bf16 products of the same shapes, all of one run.
//
// Usage: operations_bench [--filter TEXT] [--json FILE]

#include <fmt/format.h>

#include <cstdio>
#include <string_view>

#include "base/error.h"
#include "bench/cuda/harness.h"

namespace {

using deepinfer::ErrorCode;
using deepinfer::fail;

deepinfer::bench::Options parse(int argc, char** argv) {
  deepinfer::bench::Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    if (flag != "--filter" && flag != "--json") {
      fail(ErrorCode::kInvalidArgument,
           "\"{}\" is not a flag; there are --filter TEXT and --json FILE", flag);
    }
    if (++i == argc) fail(ErrorCode::kInvalidArgument, "{} needs a value", flag);
    (flag == "--filter" ? options.filter : options.json) = argv[i];
  }
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    deepinfer::bench::Harness harness(parse(argc, argv));
    measure_products(harness);
    measure_attention(harness);
    measure_index_select(harness);
    measure_row_operations(harness);
    measure_step_ends(harness);
    harness.finish();
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "operations_bench: {}\n", error.what());
    return 1;
  }
}
