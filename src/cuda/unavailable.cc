#include "base/error.h"
#include "cuda/cuda.h"

namespace deepinfer::cuda {
namespace {

constexpr auto kNotBuilt = "this program was built without CUDA (cmake --preset cuda builds it)";

}  // namespace

DeviceList list_devices() {
  return {.problem = kNotBuilt, .devices = {}, .driver = "", .runtime = ""};
}

std::unique_ptr<ops::Backend> make_backend(const BackendOptions& options) {
  fail(ErrorCode::kUnsupported, "CUDA device {} cannot be used: {}", options.device, kNotBuilt);
}

}  // namespace deepinfer::cuda
