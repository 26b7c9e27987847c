#include "cpu/workspace.h"

#include <new>

namespace deepinfer::cpu {
namespace {

constexpr int64_t kAlignment = 64;

}  // namespace

void Arena::Free::operator()(std::byte* bytes) const {
  ::operator delete(bytes, std::align_val_t{kAlignment});
}

Arena::Block Arena::allocate(int64_t bytes) {
  return Block(static_cast<std::byte*>(
      ::operator new(static_cast<size_t>(bytes), std::align_val_t{kAlignment})));
}

void* Arena::take_bytes(int64_t bytes) {
  bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (used_ + bytes <= size_) {
    void* piece = block_.get() + used_;
    used_ += bytes;
    return piece;
  }
  overflow_.push_back(allocate(bytes));
  overflow_bytes_ += bytes;
  return overflow_.back().get();
}

void Arena::reset() {
  if (!overflow_.empty()) {
    const int64_t size = size_ + overflow_bytes_;
    overflow_.clear();
    overflow_bytes_ = 0;
    size_ = 0;
    block_.reset();
    block_ = allocate(size);
    size_ = size;
  }
  used_ = 0;
}

}  // namespace deepinfer::cpu
