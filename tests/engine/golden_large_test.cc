#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/engine/golden_cases.h"
#include "tests/engine/requests.h"
#include "tests/support/golden.h"

namespace deepinfer::testing {
namespace {

std::filesystem::path large(const std::string& name) {
  return *large_data_path("golden/" + name);
}

class GoldenLarge : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!large_data_path("golden")) GTEST_SKIP() << "DEEPINFER_TEST_DATA is not set";
  }
};

TEST_F(GoldenLarge, ExactTracesStayWithinNoise) {
  for (const std::string name : {"nano-a", "nano-b", "nano-c", "nano-d"}) {
    expect_trace(large(name), large(name + "/trace.safetensors"), large(name + "/noise.json"),
                 Mode::kExact);
  }
}

TEST_F(GoldenLarge, EngineTracesStayWithinNoise) {
  for (const std::string name : {"nano-b", "nano-d"}) {
    expect_trace(large(name), large("released/" + name + "/trace.safetensors"),
                 large("released/" + name + "/noise_released.json"), Mode::kReleased);
  }
}

TEST_F(GoldenLarge, TextsContinueAsTheReference) {
  for (const std::string name : {"prompt-0-len1", "prompt-1-len2", "prompt-6-len700"}) {
    expect_text(tiny_model(), large(fmt::format("tiny-v41/{}.safetensors", name)), Mode::kExact);
    expect_text(tiny_model(), large(fmt::format("released/tiny-v41/{}.safetensors", name)),
                Mode::kReleased);
  }
}

}  // namespace
}  // namespace deepinfer::testing
