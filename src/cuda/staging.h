#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

namespace deepinfer::cuda {

/// Carries small host arrays of a step (plans, sampling rows) to the device without a wait: they
/// are copied to pinned memory at once, so the caller may drop them. Pinned memory and the device
/// memory of upload() are rings; a part is free again when the mark behind it has been reached. A
/// full ring waits for the stream. Owned by the engine thread.
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
  /// Puts host data into memory of the device, in stream order.
  void copy(const void* from, void* to, int64_t bytes, cudaStream_t stream);

  /// The end of everything handed out so far, for free_until().
  int64_t position() const { return head_; }
  /// All data before `position` has been read.
  void free_until(int64_t position) { tail_ = std::max(tail_, position); }

 private:
  const void* upload_bytes(const void* data, int64_t bytes, cudaStream_t stream);
  /// A free piece of the ring, as an offset. Errors: kInternal if it is larger than the ring.
  int64_t take(int64_t bytes, cudaStream_t stream);

  std::byte* device_;
  std::byte* pinned_ = nullptr;
  int64_t bytes_;
  // Counted on over all rounds; an offset is the rest of the division by `bytes_`.
  int64_t head_ = 0;
  int64_t tail_ = 0;
};

}  // namespace deepinfer::cuda
