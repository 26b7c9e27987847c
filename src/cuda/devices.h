#pragma once

#include "cuda/context.h"
#include "cuda/cuda.h"

namespace deepinfer::cuda {

/// The family whose kernels run on a usable device.
Family family_of(const DeviceInfo& device);

/// Makes device `index` the calling thread's current one. Errors: kUnsupported, naming why it
/// cannot be used.
DeviceInfo use_device(int index);

}  // namespace deepinfer::cuda
