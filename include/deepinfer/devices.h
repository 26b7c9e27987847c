#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace deepinfer {

/// A GPU of this machine.
struct DeviceInfo {
  int index = 0;                ///< What EngineOptions::device takes.
  std::string name;             ///< As the driver calls it.
  std::string compute;          ///< Compute capability, "9.0".
  int64_t memory_bytes = 0;     ///< All of its memory.
  int64_t free_bytes = 0;       ///< Free at the time of asking.
  int num_multiprocessors = 0;  ///< Its streaming multiprocessors.
  std::string family;           ///< Kernels that would run on it ("cuda-sm90a"); may be empty.
  std::string problem;          ///< Why it cannot be used; empty: it can.
};

/// What this program sees of GPUs.
struct DeviceReport {
  std::vector<DeviceInfo> devices;
  std::string problem;  ///< Why no device can be seen; empty: see `devices`.
  std::string driver;   ///< Newest CUDA version that the driver serves; empty: no driver.
  std::string runtime;  ///< CUDA version of this program; empty: built without CUDA.
};

/// Never throws for a missing driver or device.
DeviceReport list_devices();

}  // namespace deepinfer
