#include "cuda/staging.h"

#include <cstring>

#include "base/error.h"
#include "cuda/error.h"

namespace deepinfer::cuda {

Staging::Staging(std::byte* device_memory, int64_t bytes) : device_(device_memory), bytes_(bytes) {
  void* memory = nullptr;
  DEEPINFER_CUDA(cudaMallocHost(&memory, static_cast<size_t>(bytes)));
  pinned_ = static_cast<std::byte*>(memory);
}

Staging::~Staging() {
  cudaFreeHost(pinned_);
}

const void* Staging::upload_bytes(const void* data, int64_t bytes, cudaStream_t stream) {
  constexpr int64_t kAlignment = 256;
  const int64_t size = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  DEEPINFER_CHECK(size <= bytes_, "upload of {} bytes, the staging memory has {}", bytes, bytes_);
  if (used_ + size > bytes_) {
    DEEPINFER_CUDA(cudaStreamSynchronize(stream));
    used_ = 0;
  }
  std::memcpy(pinned_ + used_, data, static_cast<size_t>(bytes));
  std::byte* target = device_ + used_;
  DEEPINFER_CUDA(cudaMemcpyAsync(target, pinned_ + used_, static_cast<size_t>(bytes),
                                 cudaMemcpyHostToDevice, stream));
  used_ += size;
  return target;
}

}  // namespace deepinfer::cuda
