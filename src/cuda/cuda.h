#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ops/backend.h"

/// What other rooms see of the CUDA backend. Present in every build: one without CUDA reports that.
namespace deepinfer::cuda {

struct DeviceInfo {
  int index = 0;
  std::string name;
  int major = 0;  // compute capability
  int minor = 0;
  int num_multiprocessors = 0;
  int64_t memory_bytes = 0;
  int64_t free_bytes = 0;  // at the time of asking; 0 where `problem` says why
  std::string family;      // kernel family that runs on it ("cuda-sm90a"); empty if none does
  std::string problem;     // why it cannot be used; empty: it can
};

struct DeviceList {
  std::string problem;  // why no device can be seen at all; empty: see `devices`
  std::vector<DeviceInfo> devices;
  std::string driver;   // newest CUDA version that the driver serves ("13.0"); empty: no driver
  std::string runtime;  // CUDA version that this program is built with; empty: none
};

/// What this machine has. Never throws for a missing driver or device.
DeviceList list_devices();

/// Where Engram tables are read from (spec/model.md §7).
enum class EngramPlacement : uint8_t {
  kPinned,  // host memory that the device reads by row over PCIe, inside the step
  kFile,    // gathered by the host from the mapping: the step waits for the row numbers once
};

struct BackendOptions {
  int device = 0;
  /// Scratch memory of the operations, planned before the first step: see workspace_bytes().
  int64_t workspace_bytes = int64_t{256} << 20;
  EngramPlacement engram = EngramPlacement::kFile;
  bool show_progress = false;  // while weights are placed
};

/// The backend on one device. Errors: kUnsupported if the device cannot be used, naming why;
/// kResourceExhausted.
std::unique_ptr<ops::Backend> make_backend(const BackendOptions& options);

}  // namespace deepinfer::cuda
