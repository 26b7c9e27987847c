#include <gtest/gtest.h>

#include <string>

#include "deepinfer/checkpoint.h"
#include "tests/checkpoint/temporary_directory.h"
#include "tests/engine/levels_cases.h"
#include "tests/engine/requests.h"
#include "tests/support/golden.h"

namespace deepinfer::testing {
namespace {

TEST(CpuLevels, GiveTheSameBitsOnARandomModel) {
  expect_one_family(data_path("nano-d"), 150);
}

// Every kind of layer, Engram tables and the draft's weights, as the release has them.
TEST(CpuLevels, GiveTheSameBitsOnASynthesizedModel) {
  const checkpoint::TemporaryDirectory directory;
  synthesize_checkpoint({.preset = "nano", .directory = directory / "model"});
  expect_one_family(directory / "model", 70);
}

TEST(CpuLevels, GiveTheSameBitsOnTheTinyModel) {
  expect_one_family(tiny_model(), 40);
}

TEST(CpuLevels, UnknownNamesAreRefused) {
  try {
    make_level_engine(data_path("nano-d"), "sse9", 1, 64);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(std::string(error.what()).find("portable"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace deepinfer::testing
