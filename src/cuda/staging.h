#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

namespace deepinfer::cuda {

/// Carries small host arrays of a step (plans, sampling rows) to the device without a wait: they
/// are copied to pinned memory at once, so the caller may drop them. Device memory is a ring of the
/// same size; what was uploaded stays valid until synchronize() or until the ring has gone round,
/// which waits. Owned by the engine thread.
class Staging {
 public:
  /// `device_memory` is `bytes` large.
  Staging(std::byte* device_memory, int64_t bytes);
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  template <typename T>
    requires std::is_trivially_copyable_v<T>
  const T* upload(std::span<const T> values, cudaStream_t stream) {
    return static_cast<const T*>(
        upload_bytes(values.data(), static_cast<int64_t>(values.size_bytes()), stream));
  }
  /// All uploads have been read: the stream was synchronised.
  void reset() { used_ = 0; }

 private:
  const void* upload_bytes(const void* data, int64_t bytes, cudaStream_t stream);

  std::byte* device_;
  std::byte* pinned_ = nullptr;
  int64_t bytes_;
  int64_t used_ = 0;
};

}  // namespace deepinfer::cuda
