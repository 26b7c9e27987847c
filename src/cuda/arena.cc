#include "cuda/arena.h"

#include <algorithm>

#include "base/error.h"
#include "cuda/error.h"

namespace deepinfer::cuda {
namespace {

constexpr int64_t kAlignment = 256;
/// Smallest block: small tensors share one.
constexpr int64_t kBlockBytes = int64_t{32} << 20;

int64_t aligned(int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

Arena::~Arena() {
  for (void* block : blocks_) cudaFree(block);
}

void Arena::reserve(int64_t bytes) {
  bytes = aligned(std::max(bytes, kBlockBytes));
  void* block = nullptr;
  const cudaError_t result = cudaMalloc(&block, static_cast<size_t>(bytes));
  if (result == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // not sticky: the next call must not report it again
    size_t free = 0;
    size_t total = 0;
    DEEPINFER_CUDA(cudaMemGetInfo(&free, &total));
    constexpr double kGiB = 1024.0 * 1024 * 1024;
    fail(ErrorCode::kResourceExhausted,
         "the device has {:.2f} of {:.2f} GiB free, {:.2f} GiB more are needed beyond {:.2f}",
         static_cast<double>(free) / kGiB, static_cast<double>(total) / kGiB,
         static_cast<double>(bytes) / kGiB, static_cast<double>(taken_) / kGiB);
  }
  DEEPINFER_CUDA(result);
  blocks_.push_back(block);
  next_ = static_cast<std::byte*>(block);
  left_ = bytes;
}

std::byte* Arena::take(int64_t bytes) {
  bytes = aligned(std::max<int64_t>(bytes, 1));
  if (bytes > left_) reserve(bytes);
  std::byte* memory = next_;
  next_ += bytes;
  left_ -= bytes;
  taken_ += bytes;
  return memory;
}

void Arena::release(const Mark& mark) {
  for (; blocks_.size() > mark.num_blocks; blocks_.pop_back()) cudaFree(blocks_.back());
  next_ = mark.next;
  left_ = mark.left;
  taken_ = mark.taken;
}

std::byte* Workspace::take_bytes(int64_t bytes) {
  bytes = aligned(bytes);
  DEEPINFER_CHECK(bytes <= bytes_left(), "workspace: {} bytes wanted, {} of {} left", bytes,
                  bytes_left(), bytes_);
  std::byte* memory = memory_ + used_;
  used_ += bytes;
  peak_ = std::max(peak_, used_);
  return memory;
}

}  // namespace deepinfer::cuda
