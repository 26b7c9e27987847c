#pragma once

#include <string_view>
#include <vector>

#include "cpu/kernels.h"

namespace deepinfer::cpu {

/// The levels that this build has and this processor runs, best first; "portable" is always last.
std::vector<const Kernels*> available_kernels();

/// The best level, or the one named `level` ("" = the environment's DEEPINFER_CPU_LEVEL, which may
/// be unset). Errors: kInvalidArgument if the level is unknown or this processor lacks it.
const Kernels& choose_kernels(std::string_view level = {});

}  // namespace deepinfer::cpu
