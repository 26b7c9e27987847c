#include "cuda/devices.h"

#include <cuda_runtime.h>
#include <fmt/core.h>

#include "base/error.h"
#include "cuda/error.h"

namespace deepinfer::cuda {
namespace {

#ifdef DEEPINFER_CUDA_SM90A
constexpr bool kHasSm90a = true;
#else
constexpr bool kHasSm90a = false;
#endif
#ifdef DEEPINFER_CUDA_GENERIC
constexpr bool kHasGeneric = true;
#else
constexpr bool kHasGeneric = false;
#endif

constexpr auto kSm90aName = "cuda-sm90a";
constexpr auto kGenericName = "cuda-generic";

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

/// The family compiled into this program that serves a compute capability; empty if none does.
std::string family_name(int major, int minor) {
  if (kHasSm90a && major == 9 && minor == 0) return kSm90aName;
  if (kHasGeneric && (major >= 10 || major == 8 || (major == 9 && !kHasSm90a))) {
    return kGenericName;
  }
  return "";
}

DeviceInfo describe(int index) {
  DeviceInfo info;
  info.index = index;
  cudaDeviceProp properties{};
  if (const cudaError_t result = cudaGetDeviceProperties(&properties, index);
      result != cudaSuccess) {
    cudaGetLastError();
    info.problem = cudaGetErrorString(result);
    return info;
  }
  info.name = properties.name;
  info.major = properties.major;
  info.minor = properties.minor;
  info.num_multiprocessors = properties.multiProcessorCount;
  info.memory_bytes = static_cast<int64_t>(properties.totalGlobalMem);
  info.family = family_name(info.major, info.minor);
  if (info.family.empty()) {
    info.problem = fmt::format("this program has no kernels for compute capability {}.{}",
                               info.major, info.minor);
    return info;
  }
  size_t free = 0;
  size_t total = 0;
  cudaError_t result = cudaSetDevice(index);
  if (result == cudaSuccess) result = cudaMemGetInfo(&free, &total);
  if (result != cudaSuccess) {
    cudaGetLastError();
    info.problem = cudaGetErrorString(result);
  }
  info.free_bytes = static_cast<int64_t>(free);
  return info;
}

}  // namespace

DeviceList list_devices() {
  DeviceList list;
  int version = 0;
  if (cudaRuntimeGetVersion(&version) == cudaSuccess) list.runtime = version_text(version);
  if (cudaDriverGetVersion(&version) == cudaSuccess && version > 0) {
    list.driver = version_text(version);
  }
  int count = 0;
  if (const cudaError_t result = cudaGetDeviceCount(&count); result != cudaSuccess) {
    cudaGetLastError();
    list.problem = list.driver.empty()
                       ? "there is no NVIDIA driver on this machine"
                       : fmt::format("the driver answers: {}", cudaGetErrorString(result));
    return list;
  }
  if (count == 0) list.problem = "the driver sees no device";
  for (int i = 0; i < count; ++i) list.devices.push_back(describe(i));
  return list;
}

Family family_of(const DeviceInfo& device) {
  return device.family == kSm90aName ? Family::kSm90a : Family::kGeneric;
}

DeviceInfo use_device(int index) {
  const DeviceList list = list_devices();
  if (!list.problem.empty()) {
    fail(ErrorCode::kUnsupported, "CUDA device {} cannot be used: {}", index, list.problem);
  }
  if (index < 0 || index >= static_cast<int>(list.devices.size())) {
    fail(ErrorCode::kUnsupported, "there is no CUDA device {}, expected 0 to {}", index,
         list.devices.size() - 1);
  }
  const DeviceInfo& device = list.devices[static_cast<size_t>(index)];
  if (!device.problem.empty()) {
    fail(ErrorCode::kUnsupported, "CUDA device {} ({}) cannot be used: {}", index, device.name,
         device.problem);
  }
  DEEPINFER_CUDA(cudaSetDevice(index));
  return device;
}

}  // namespace deepinfer::cuda
