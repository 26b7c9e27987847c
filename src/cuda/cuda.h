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

struct BackendOptions {
  int device = 0;
  /// Scratch memory of the operations. One that needs more fails by name; one that can tile its
  /// rows takes what there is.
  int64_t workspace_bytes = int64_t{256} << 20;
  /// Memory for allocate() and place(), taken at once; what goes beyond is taken in further blocks.
  int64_t reserve_bytes = 0;
  /// Engram tables stay in the mapped file, and the host gathers their rows: the step waits for it
  /// once per table. Else they are copied to pinned host memory, which the device reads by row.
  bool tables_in_file = false;
};

/// The backend on one device. Errors: kUnsupported if the device cannot be used, naming why;
/// kResourceExhausted.
std::unique_ptr<ops::Backend> make_backend(const BackendOptions& options);

}  // namespace deepinfer::cuda
