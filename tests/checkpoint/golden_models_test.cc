// The nano checkpoints of the large golden set: engram, drafts, sources in other layers.
#include <gtest/gtest.h>

#include <cstdlib>

#include "checkpoint/checkpoint.h"

namespace deepinfer::checkpoint {
namespace {

TEST(GoldenModels, Open) {
  const char* const data = std::getenv("DEEPINFER_TEST_DATA");
  if (data == nullptr) GTEST_SKIP() << "DEEPINFER_TEST_DATA is not set";
  for (const char* name : {"nano-a", "nano-b", "nano-c", "nano-d"}) {
    SCOPED_TRACE(name);
    const auto checkpoint = Checkpoint::open(std::filesystem::path(data) / "golden" / name);
    EXPECT_TRUE(checkpoint->ignored_tensors().empty());
    EXPECT_EQ(checkpoint->engram_token_map().has_value(),
              !checkpoint->config().engram_layers.empty());
  }
}

}  // namespace
}  // namespace deepinfer::checkpoint
