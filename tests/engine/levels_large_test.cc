#include <gtest/gtest.h>

#include <string>

#include "tests/engine/levels_cases.h"
#include "tests/support/golden.h"

namespace deepinfer::testing {
namespace {

TEST(CpuLevelsLarge, GiveTheSameBitsOnTheGoldenModels) {
  if (!large_data_path("golden")) GTEST_SKIP() << "DEEPINFER_TEST_DATA is not set";
  for (const std::string name : {"nano-a", "nano-b", "nano-c", "nano-d"}) {
    expect_one_family(*large_data_path("golden/" + name), 150);
  }
}

}  // namespace
}  // namespace deepinfer::testing
