#include "deepinfer/devices.h"

#include <fmt/core.h>

#include <utility>

#include "cuda/cuda.h"

namespace deepinfer {

DeviceReport list_devices() {
  cuda::DeviceList list = cuda::list_devices();
  DeviceReport report{.devices = {},
                      .problem = std::move(list.problem),
                      .driver = std::move(list.driver),
                      .runtime = std::move(list.runtime)};
  for (cuda::DeviceInfo& device : list.devices) {
    report.devices.push_back({.index = device.index,
                              .name = std::move(device.name),
                              .compute = fmt::format("{}.{}", device.major, device.minor),
                              .memory_bytes = device.memory_bytes,
                              .free_bytes = device.free_bytes,
                              .num_multiprocessors = device.num_multiprocessors,
                              .family = std::move(device.family),
                              .problem = std::move(device.problem)});
  }
  return report;
}

}  // namespace deepinfer
