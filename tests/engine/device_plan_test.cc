#include "engine/device_plan.h"

#include <gtest/gtest.h>

#include "checkpoint/checkpoint.h"
#include "tests/support/golden.h"

namespace deepinfer::engine {
namespace {

constexpr model::StepLimits kLimits{.max_rows = 512, .max_logit_rows = 64};
constexpr int64_t kCaches = int64_t{1} << 20;

TEST(DevicePlan, GrowsWithTheRowsOfAStep) {
  const auto checkpoint = checkpoint::Checkpoint::open(testing::data_path("nano-d"), {});
  const DevicePlan few = plan_device(checkpoint->config(), kLimits, kCaches);
  const DevicePlan many =
      plan_device(checkpoint->config(), {.max_rows = 4096, .max_logit_rows = 64}, 2 * kCaches);
  EXPECT_EQ(many.weights, few.weights);
  EXPECT_EQ(many.caches, 2 * few.caches);
  EXPECT_GT(many.activations, few.activations);
  EXPECT_GT(many.workspace, few.workspace);
  EXPECT_EQ(few.total(), few.weights + few.caches + few.activations + few.workspace);
}

TEST(DevicePlan, IsTakenInOnePiece) {
  const DevicePlan plan{.weights = 5, .caches = 7, .activations = 11, .workspace = 13};
  EngineOptions engine;
  engine.device = 1000;
  engine.engram = "file";
  const cuda::BackendOptions options = backend_options(engine, plan);
  EXPECT_EQ(options.device, 1000);  // the backend names a device that is not there
  EXPECT_EQ(options.reserve_bytes, 23);
  EXPECT_EQ(options.workspace_bytes, 13);
  EXPECT_TRUE(options.tables_in_file);
}

}  // namespace
}  // namespace deepinfer::engine
