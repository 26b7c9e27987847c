#include <gtest/gtest.h>

#include "cuda/cuda.h"
#include "deepinfer/error.h"

namespace deepinfer::cuda {
namespace {

TEST(Devices, ListSaysWhatThereIsOrWhyNothingIs) {
  const DeviceList list = list_devices();
  EXPECT_EQ(list.problem.empty(), !list.devices.empty());
  for (const DeviceInfo& device : list.devices) {
    EXPECT_NE(device.problem.empty(), device.family.empty()) << device.name;
  }
}

TEST(Devices, MakeBackendNamesADeviceThatIsNotThere) {
  try {
    make_backend({.device = 1000});
    FAIL() << "made a backend on device 1000";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_NE(std::string(error.what()).find("1000"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace deepinfer::cuda
