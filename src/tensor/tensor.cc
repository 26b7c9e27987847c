#include "tensor/tensor.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <new>

namespace deepinfer {

Shape::Shape(std::span<const int64_t> dims) : rank_(static_cast<int>(dims.size())) {
  DEEPINFER_CHECK(dims.size() <= kMaxRank, "rank {}", dims.size());
  std::copy(dims.begin(), dims.end(), dims_.begin());
}

int64_t Shape::num_elements() const {
  int64_t count = 1;
  for (const int64_t dim : dims()) count *= dim;
  return count;
}

std::string Shape::to_string() const {
  return fmt::format("[{}]", fmt::join(dims(), ", "));
}

bool Shape::operator==(const Shape& other) const {
  return std::ranges::equal(dims(), other.dims());
}

TensorView::TensorView(void* data, DType dtype, const Shape& shape, Device device)
    : data_(data), dtype_(dtype), shape_(shape), device_(device) {
  int64_t stride = 1;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    strides_[static_cast<size_t>(axis)] = stride;
    stride *= shape[axis];
  }
}

TensorView TensorView::slice(int64_t begin, int64_t count) const {
  DEEPINFER_CHECK(begin >= 0 && count >= 0 && begin + count <= dim(0), "slice [{}, +{}) of {}",
                  begin, count, shape_.to_string());
  std::array<int64_t, Shape::kMaxRank> dims{};
  std::ranges::copy(shape_.dims(), dims.begin());
  dims[0] = count;
  TensorView result = *this;
  result.shape_ = Shape(std::span(dims.data(), static_cast<size_t>(shape_.rank())));
  result.data_ = static_cast<std::byte*>(data_) + begin * strides_[0] * size_of(dtype_);
  return result;
}

TensorView TensorView::select(int axis, int64_t i) const {
  DEEPINFER_CHECK(axis >= 0 && axis < shape_.rank() && i >= 0 && i < dim(axis),
                  "index {} of axis {} of {}", i, axis, shape_.to_string());
  TensorView result = *this;
  std::array<int64_t, Shape::kMaxRank> dims{};
  int rank = 0;
  for (int a = 0; a < shape_.rank(); ++a) {
    if (a == axis) continue;
    dims[static_cast<size_t>(rank)] = dim(a);
    result.strides_[static_cast<size_t>(rank)] = stride(a);
    ++rank;
  }
  result.shape_ = Shape(std::span(dims.data(), static_cast<size_t>(rank)));
  result.data_ = static_cast<std::byte*>(data_) + i * stride(axis) * size_of(dtype_);
  return result;
}

TensorView TensorView::reshape(const Shape& shape) const {
  DEEPINFER_CHECK(shape.num_elements() == shape_.num_elements(), "{} as {}", shape_.to_string(),
                  shape.to_string());
  const TensorView contiguous(data_, dtype_, shape_, device_);
  for (int axis = 0; axis < shape_.rank(); ++axis) {
    DEEPINFER_CHECK(dim(axis) <= 1 || stride(axis) == contiguous.stride(axis),
                    "reshape of a strided view");
  }
  return {data_, dtype_, shape, device_};
}

void Tensor::Free::operator()(void* bytes) const {
  std::free(bytes);
}

Tensor::Tensor(DType dtype, const Shape& shape) {
  constexpr size_t kAlignment = 64;
  const auto bytes = static_cast<size_t>(shape.num_elements() * size_of(dtype));
  // calloc leaves large blocks untouched until they are used: memory that is never needed costs
  // nothing.
  storage_.reset(std::calloc(bytes + kAlignment, 1));
  if (storage_ == nullptr) throw std::bad_alloc();
  void* aligned = storage_.get();
  size_t space = bytes + kAlignment;
  std::align(kAlignment, bytes, aligned, space);
  view_ = TensorView(aligned, dtype, shape);
}

}  // namespace deepinfer
