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

int64_t Staging::take(int64_t bytes, cudaStream_t stream) {
  constexpr int64_t kAlignment = 256;
  const int64_t size = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  DEEPINFER_CHECK(size <= bytes_, "upload of {} bytes, the staging memory has {}", bytes, bytes_);
  // A piece does not go round the end.
  if (head_ % bytes_ + size > bytes_) head_ += bytes_ - head_ % bytes_;
  if (head_ + size - tail_ > bytes_) {
    DEEPINFER_CUDA(cudaStreamSynchronize(stream));
    tail_ = head_;
  }
  const int64_t offset = head_ % bytes_;
  head_ += size;
  return offset;
}

const void* Staging::upload_bytes(const void* data, int64_t bytes, cudaStream_t stream) {
  if (bytes == 0) return device_;
  const int64_t offset = take(bytes, stream);
  std::memcpy(pinned_ + offset, data, static_cast<size_t>(bytes));
  DEEPINFER_CUDA(cudaMemcpyAsync(device_ + offset, pinned_ + offset, static_cast<size_t>(bytes),
                                 cudaMemcpyHostToDevice, stream));
  return device_ + offset;
}

void Staging::copy(const void* from, void* to, int64_t bytes, cudaStream_t stream) {
  const int64_t offset = take(bytes, stream);
  std::memcpy(pinned_ + offset, from, static_cast<size_t>(bytes));
  DEEPINFER_CUDA(cudaMemcpyAsync(to, pinned_ + offset, static_cast<size_t>(bytes),
                                 cudaMemcpyHostToDevice, stream));
}

}  // namespace deepinfer::cuda
