#include <gtest/gtest.h>

#include <cstdio>

#include "cuda/cuda.h"

/// Skips the whole program where no GPU can be used: 77 means so to ctest.
int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  const deepinfer::cuda::DeviceList list = deepinfer::cuda::list_devices();
  const std::string problem = !list.problem.empty() ? list.problem : list.devices.front().problem;
  if (!problem.empty()) {
    std::printf("skipped, no GPU: %s\n", problem.c_str());
    return 77;
  }
  return RUN_ALL_TESTS();
}
