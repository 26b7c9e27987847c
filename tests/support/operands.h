#pragma once

#include <deque>
#include <vector>

#include "ops/backend.h"
#include "tests/support/tensors.h"

namespace deepinfer::testing {

/// Operands of operations in a backend's memory. Views live as long as this object.
class Operands {
 public:
  explicit Operands(ops::Backend& backend) : backend_(backend) {}

  DType act() const { return ops::activation_dtype(backend_.numerics()); }
  /// A copy of host data.
  TensorView put(const TensorView& host);
  /// fp32 values as activations.
  TensorView put_act(std::span<const float> values, const Shape& shape);
  TensorView put_f32(std::span<const float> values, const Shape& shape);
  TensorView put_i32(std::span<const int32_t> values, const Shape& shape);
  /// A weight: `stored` must live as long as this object.
  QuantView place(const QuantView& stored);
  QuantView place(const TensorView& stored) { return place(QuantView{stored, {}, 1}); }
  TensorView zeros(DType dtype, const Shape& shape);
  TensorView zeros_act(const Shape& shape) { return zeros(act(), shape); }

  /// Waits for the operations and copies to the host.
  Tensor get(const TensorView& device);
  /// fp32 or bf16 results as fp32.
  std::vector<float> floats(const TensorView& device) { return to_floats(get(device)); }
  std::vector<int64_t> ints(const TensorView& device);

 private:
  ops::Backend& backend_;
  std::deque<Tensor> owned_;
};

}  // namespace deepinfer::testing
