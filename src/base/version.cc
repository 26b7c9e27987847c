#include "deepinfer/version.h"

namespace deepinfer {

const char* version() noexcept {
  return DEEPINFER_VERSION;
}

}  // namespace deepinfer
