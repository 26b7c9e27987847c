#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <type_traits>

#include "base/error.h"
#include "tensor/dtype.h"
#include "tensor/formats.h"

namespace deepinfer {

/// Up to five extents, stored inline.
class Shape {
 public:
  static constexpr int kMaxRank = 5;

  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) : Shape(std::span(dims.begin(), dims.size())) {}
  explicit Shape(std::span<const int64_t> dims);

  int rank() const { return rank_; }
  int64_t operator[](int axis) const { return dims_[static_cast<size_t>(axis)]; }
  std::span<const int64_t> dims() const { return {dims_.data(), static_cast<size_t>(rank_)}; }
  /// Product of the extents; 1 for rank 0.
  int64_t num_elements() const;
  /// "[3, 5120]".
  std::string to_string() const;
  bool operator==(const Shape& other) const;

 private:
  std::array<int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

enum class DeviceKind : uint8_t { kHost, kCuda };

struct Device {
  DeviceKind kind = DeviceKind::kHost;
  int8_t index = 0;
  bool operator==(const Device&) const = default;
};

namespace detail {
template <typename T>
constexpr bool holds(DType dtype) {
  using U = std::remove_const_t<T>;
  if constexpr (std::is_same_v<U, float>) return dtype == DType::kF32;
  if constexpr (std::is_same_v<U, BFloat16>) return dtype == DType::kBF16;
  if constexpr (std::is_same_v<U, int32_t>) return dtype == DType::kI32;
  if constexpr (std::is_same_v<U, int64_t>) return dtype == DType::kI64;
  if constexpr (std::is_same_v<U, uint16_t>) return dtype == DType::kU16 || dtype == DType::kBF16;
  if constexpr (std::is_same_v<U, uint8_t>) return size_of(dtype) == 1;
  if constexpr (std::is_same_v<U, std::byte>) return true;
  return false;
}
}  // namespace detail

/// A non-owning, row-major (unless strides say otherwise) view of numbers. Cheap to copy; as
/// const-correct as a pointer. A default-constructed view is empty: how optional operands are left
/// out. Quantised weights carry their scales as a second view: see QuantView.
class TensorView {
 public:
  TensorView() = default;
  /// A contiguous view; `data` must hold shape.num_elements() elements and outlive the view.
  TensorView(void* data, DType dtype, const Shape& shape, Device device = {});

  bool empty() const { return data_ == nullptr; }
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  int64_t dim(int axis) const { return shape_[axis]; }
  int64_t stride(int axis) const { return strides_[static_cast<size_t>(axis)]; }
  Device device() const { return device_; }
  int64_t num_bytes() const { return shape_.num_elements() * size_of(dtype_); }
  void* data() const { return data_; }

  /// The elements as T; fails a check if the dtype is another. uint8_t reads any one-byte type.
  template <typename T>
  T* as() const {
    DEEPINFER_CHECK(detail::holds<T>(dtype_), "tensor holds {}", deepinfer::to_string(dtype_));
    return static_cast<T*>(data_);
  }
  /// Row `i` along axis 0, as T.
  template <typename T>
  T* row(int64_t i) const {
    return as<T>() + i * strides_[0];
  }

  /// Elements [begin, begin + count) of axis 0.
  TensorView slice(int64_t begin, int64_t count) const;
  /// The view without axis 0, at index `i`.
  TensorView at(int64_t i) const { return select(0, i); }
  /// The view without `axis`, at index `i` of it: one target's rows of [rows, targets, d], say.
  TensorView select(int axis, int64_t i) const;
  /// The same elements in another shape; the view must be contiguous.
  TensorView reshape(const Shape& shape) const;

 private:
  void* data_ = nullptr;
  DType dtype_ = DType::kF32;
  Shape shape_;
  std::array<int64_t, Shape::kMaxRank> strides_{};
  Device device_;
};

/// A weight as stored: values plus block scales. Value of element (o, i) = weight(o, i) * 2^(scale
/// - 127), with one scale per [scale_rows × 32] block. bf16 and fp32 weights have no scales.
struct QuantView {
  TensorView weight;  // [out, in] bf16 | fp32 | e4m3, or [out, in/2] e2m1x2
  TensorView scale;   // [ceil(out/scale_rows), in/32] e8m0; empty for bf16 and fp32
  int64_t scale_rows =
      1;  // rows that share a scale: 32 for FP8 matrices, 1 for FP4 and Engram rows

  bool empty() const { return weight.empty(); }
  int64_t rows() const { return weight.dim(0); }
  int64_t cols() const { return weight.dim(1) * (weight.dtype() == DType::kE2M1x2 ? 2 : 1); }
};

/// Owning, move-only host tensor, 64-byte aligned and zero-initialised.
class Tensor {
 public:
  Tensor() = default;
  Tensor(DType dtype, const Shape& shape);
  /// A tensor in memory that a backend owns and keeps for as long as it lives.
  static Tensor borrow(const TensorView& view) {
    Tensor tensor;
    tensor.view_ = view;
    return tensor;
  }

  const TensorView& view() const { return view_; }
  operator const TensorView&() const { return view_; }  // NOLINT(google-explicit-constructor)
  const Shape& shape() const { return view_.shape(); }
  template <typename T>
  T* as() const {
    return view_.as<T>();
  }

 private:
  struct Free {
    void operator()(void* bytes) const;
  };
  std::unique_ptr<void, Free> storage_;
  TensorView view_;
};

}  // namespace deepinfer
