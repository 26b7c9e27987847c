#include <gtest/gtest.h>

#include "tests/tensor/golden_checks.h"

namespace deepinfer {
namespace {

TEST(NumberFormats, MatchLargeGoldens) {
  const auto path = testing::large_data_path("golden/ops.safetensors");
  if (!path) GTEST_SKIP() << "DEEPINFER_TEST_DATA is not set";
  const testing::Golden golden(*path);
  check_number_formats(golden);
  check_cache_quantisers(golden);
  check_weight_formats(golden);
}

}  // namespace
}  // namespace deepinfer
